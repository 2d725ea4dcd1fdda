"""Ring: the slots of one shared block, and who holds them.

A slot is free, at work in a worker, or lent to the consumer. A lent slot comes back when the last view of its batch is
gone: views, slices, `.numpy()` and DLPack all keep the array that the ring watches alive. When a consumer keeps
batches the ring grows (memory is taken when a slot is first written) up to a bound; past it batches are copies.

A slot begins with what its worker is to make: the places of the records, their occurrences, and the rows of the batch
they belong in. So the messages that go through pipes have one small size, however large a batch is, and never fill a
pipe.
"""

from __future__ import annotations

import heapq
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.locations import COLUMNS
from fastdata.sharedmem import SharedBlock

# Slots begin at page boundaries, behind one page of the crew's own.
PAGE = 4096
# Batches that a consumer may keep before it gets copies: a prefetcher holds two or three, an evaluation a few more.
KEPT = 8
# Pixels begin at cache lines.
_LINE = 64
# For each sample: record, file, offset, size, checksum, occurrence, row in the batch.
_WORDS = COLUMNS + 2


def slot_words(block: SharedBlock, place: int, batch_size: int) -> tuple[NDArray[np.int64], int]:
    """The words at the head of a slot, and the bytes that they take: for each sample its place, occurrence and row."""
    words = np.frombuffer(block.buffer, np.int64, _WORDS * batch_size, place).reshape(batch_size, _WORDS)
    return words, -(-words.nbytes // _LINE) * _LINE


class Ring:
    """Slots of equal size.

    Args:
        block: the shared memory; it is grown to hold every slot there may be.
        batch_size: the most samples in a batch.
        sample_bytes: what one sample takes; 0 for slots that only carry jobs.
        depth: how many slots are at work at a time.
    """

    def __init__(self, block: SharedBlock, batch_size: int, sample_bytes: int, depth: int) -> None:
        self._block, self._batch_size, self._depth = block, batch_size, depth
        self._head = -(-8 * _WORDS * batch_size // _LINE) * _LINE
        self._bytes = batch_size * sample_bytes
        self._slot_bytes = -(-(self._head + self._bytes) // PAGE) * PAGE
        self._most = depth + max(depth, KEPT)
        self.size = PAGE + self._most * self._slot_bytes
        block.grow(self.size)
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

    def order(self, slot: int, places: NDArray[np.int64], rows: list[int] | None) -> None:
        """Write down what is to be made in a slot."""
        words = slot_words(self._block, self.place(slot), self._batch_size)[0]
        words[: len(places), :-1] = places
        if rows is not None:
            words[: len(rows), -1] = rows

    def give_back(self, slot: int) -> None:
        """Make a slot free that was not lent."""
        heapq.heappush(self._free, slot)

    def reclaim(self, working: set[int]) -> None:
        """Make every slot free that is neither lent nor among those at work."""
        self._collect()
        self._free = [slot for slot in range(self._count) if slot not in self._watched and slot not in working]

    def hand_out(self, slot: int, working: int) -> NDArray[np.uint8]:
        """The bytes of a finished slot's samples, for the consumer to keep as long as it likes.

        Args:
            slot: the slot.
            working: how many others are at work: with those that are free, there must be enough to go on.
        """
        data = np.frombuffer(self._block.buffer, np.uint8, self._bytes, self.place(slot) + self._head)
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
