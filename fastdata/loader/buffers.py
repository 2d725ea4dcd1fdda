"""Buffers: the memory that batches are made in, and which of it the consumer holds.

A buffer belongs to whoever refers to it: to the iterator and the executor while its batch is made, then to the
consumer. It is free again when the last of them drops it: views, slices, `.numpy()` and DLPack all keep it. So nobody
has to give a buffer back, whatever ends an epoch.

The buffers of worker processes are slots of one shared block. A slot begins with a table of what the worker is to make,
so that the messages that go through pipes have one small size, however large a batch is, and never fill a pipe.
"""

from __future__ import annotations

import heapq
import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError, ResourceError
from fastdata.sharedmem import SharedBlock

# Slots begin at page boundaries, behind one page of the executor's own.
PAGE = 4096
# Batches that a consumer may keep before it gets copies: a prefetcher holds two or three, an evaluation a few more.
KEPT = 8
# Pixels begin at cache lines.
_LINE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Memory for one batch.

    Attributes:
        samples: for how many samples it is.
        pixels: the bytes of all samples together.
        table: what a worker process is to make: for each sample its row of the request, and its row in the batch.
        offset: where it lies in the shared block.
    """

    samples: int
    pixels: NDArray[np.uint8]
    table: NDArray[np.int64]
    offset: int


class LocalBuffers:
    """Buffers of this process alone."""

    _NO_TABLE = np.empty((0, 0), np.int64)

    def acquire(self, samples: int, sample_bytes: int) -> Buffer:
        """Memory for a batch."""
        return Buffer(samples, np.empty(samples * sample_bytes, np.uint8), self._NO_TABLE, 0)

    def lend(self, buffer: Buffer) -> NDArray[np.uint8]:
        """The pixels of a finished batch, for the consumer to keep as long as it likes."""
        return buffer.pixels


class BatchBuffers:
    """A pool of buffers in shared memory: slots of equal size, the lowest free one first.

    Memory is taken when a slot is first written. When a consumer keeps more batches than are provided for, it gets
    copies of further ones.

    Args:
        block: the shared memory, one page long; it grows with the pool.
        depth: how many batches are under way at a time.
        columns: numbers in the row of a sample of a request.
    """

    def __init__(self, block: SharedBlock, depth: int, columns: int) -> None:
        self._block, self._depth, self._columns = block, depth, columns
        self._most_lent = max(depth, KEPT)
        self._slot_bytes = 0
        self._start = block.size  # slots below were too small, and are not used again
        self._free: list[int] = []
        self._lent: set[int] = set()
        self._watched: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        self._returned: deque[int] = deque()

    def acquire(self, samples: int, sample_bytes: int) -> Buffer:
        """A free slot. A batch larger than any before makes slots of at least twice the size.

        Raises:
            OptionError: the system does not give so much memory.
        """
        self._collect()
        size = _table_bytes(samples, self._columns) + samples * sample_bytes
        if size > self._slot_bytes:
            pages = -(-size // PAGE) * PAGE
            self._slot_bytes = max(pages, 2 * self._slot_bytes)
            self._start = self._block.size
            self._free.clear()
        if not self._free:
            self._extend(samples, sample_bytes)
        offset = heapq.heappop(self._free)
        buffer, memory = _mapped(self._block, offset, samples, sample_bytes, self._columns)
        # The callback may run in any thread and at any moment: appending to a deque is all it does.
        returned = self._returned
        self._watched[offset] = weakref.ref(memory, lambda _: returned.append(offset))
        return buffer

    def lend(self, buffer: Buffer) -> NDArray[np.uint8]:
        """The pixels of a finished batch, for the consumer to keep as long as it likes."""
        self._collect()
        if len(self._lent) >= self._most_lent:
            return buffer.pixels.copy()
        self._lent.add(buffer.offset)
        return buffer.pixels

    def _extend(self, samples: int, sample_bytes: int) -> None:
        """Add slots for all batches that may be under way or kept."""
        start, count = self._block.size, self._depth + self._most_lent
        try:
            self._block.grow(start + count * self._slot_bytes)
        except ResourceError as error:
            raise OptionError(
                f"{error}; it is for batches of {samples} samples of {sample_bytes:,} bytes, {self._depth} under way "
                "and some in use: use a smaller batch_size or prefetch_factor, or fewer workers"
            ) from error
        self._free = [start + number * self._slot_bytes for number in range(count)]

    def _collect(self) -> None:
        """Take back the slots that nobody refers to any more."""
        while self._returned:
            offset = self._returned.popleft()
            del self._watched[offset]
            self._lent.discard(offset)
            if offset >= self._start:
                heapq.heappush(self._free, offset)


def buffer_at(block: SharedBlock, offset: int, samples: int, sample_bytes: int, columns: int) -> Buffer:
    """A slot as a worker process sees it."""
    return _mapped(block, offset, samples, sample_bytes, columns)[0]


def _mapped(
    block: SharedBlock, offset: int, samples: int, sample_bytes: int, columns: int
) -> tuple[Buffer, NDArray[np.uint8]]:
    """A slot, and the one array that both of its parts refer to."""
    head = _table_bytes(samples, columns)
    memory = np.frombuffer(block.buffer, np.uint8, head + samples * sample_bytes, offset)
    table = memory[: 8 * (columns + 1) * samples].view(np.int64).reshape(samples, columns + 1)
    return Buffer(samples, memory[head:], table, offset), memory


def _table_bytes(samples: int, columns: int) -> int:
    return -(-8 * (columns + 1) * samples // _LINE) * _LINE
