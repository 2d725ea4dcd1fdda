"""Ring: the slots of one shared block, and who holds them.

A slot is free, at work in a worker, or lent to the consumer. A lent slot comes back when the last view of its batch is
gone: views, slices, `.numpy()` and DLPack all keep the array that the ring watches alive. When a consumer keeps
batches the ring grows (memory is taken when a slot is first written) up to a bound; past it batches are copies.
"""

from __future__ import annotations

import heapq
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

from fastdata.sharedmem import SharedBlock

# Slots begin at page boundaries, behind one page of the crew's own.
PAGE = 4096
# Batches that a consumer may keep before it gets copies: a prefetcher holds two or three, an evaluation a few more.
KEPT = 8


class Ring:
    """Slots of equal size.

    Args:
        block: the shared memory; it is grown to hold every slot there may be.
        slot_bytes: what a slot must hold.
        depth: how many slots are at work at a time.
    """

    def __init__(self, block: SharedBlock, slot_bytes: int, depth: int) -> None:
        self._slot_bytes = -(-max(slot_bytes, 1) // PAGE) * PAGE
        self._most = depth + max(depth, KEPT)
        self._depth = depth
        self.size = PAGE + self._most * self._slot_bytes
        block.grow(self.size)
        self._block = block
        self._free = list(range(depth))
        self._count = depth
        self._returned: deque[int] = deque()
        self._watched: dict[int, weakref.ref[NDArray[np.uint8]]] = {}

    def take(self) -> int | None:
        """A slot to work in, the lowest free one; None when all are in use."""
        self._collect()
        if not self._free and self._count < self._most:
            self._count += 1
            return self._count - 1
        return heapq.heappop(self._free) if self._free else None

    def place(self, slot: int) -> int:
        """Where a slot begins in the block."""
        return PAGE + slot * self._slot_bytes

    def give_back(self, slot: int) -> None:
        """Make a slot free that was not lent."""
        heapq.heappush(self._free, slot)

    def reclaim(self, working: set[int]) -> None:
        """Make every slot free that is neither lent nor among those at work."""
        self._collect()
        self._free = [slot for slot in range(self._count) if slot not in self._watched and slot not in working]

    def hand_out(self, slot: int, working: int) -> NDArray[np.uint8]:
        """The bytes of a finished slot, for the consumer to keep as long as it likes.

        Args:
            slot: the slot.
            working: how many others are at work: with those that are free, there must be enough to go on.
        """
        data = np.frombuffer(self._block.buffer, np.uint8, self._slot_bytes, self.place(slot))
        self._collect()
        if len(self._free) + self._most - self._count + working < self._depth:
            copy = data.copy()
            self.give_back(slot)
            return copy
        # The callback may run in any thread and at any moment: appending to a deque is all it does.
        returned = self._returned
        self._watched[slot] = weakref.ref(data, lambda _: returned.append(slot))
        return data

    def _collect(self) -> None:
        while self._returned:
            slot = self._returned.popleft()
            del self._watched[slot]
            heapq.heappush(self._free, slot)
