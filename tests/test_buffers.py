"""The buffers that the loader's batches are made in: who holds them, and when they come back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from fastdata.loader.buffers import KEPT, PAGE, BatchBuffers, buffer_at
from fastdata.sharedmem import SharedBlock

DEPTH = 3
BYTES = 100
COLUMNS = 6


@pytest.fixture
def block() -> Iterator[SharedBlock]:
    with SharedBlock(PAGE) as block:
        yield block


@pytest.fixture
def buffers(block: SharedBlock) -> BatchBuffers:
    return BatchBuffers(block, DEPTH, COLUMNS)


def test_slots_do_not_overlap_and_begin_at_pages(buffers: BatchBuffers) -> None:
    held = [buffers.acquire(1, BYTES) for _ in range(3 * (DEPTH + KEPT))]  # more than there should be: never a dead end
    offsets = [buffer.offset for buffer in held]
    assert len(set(offsets)) == len(held)
    assert all(offset % PAGE == 0 and offset >= PAGE for offset in offsets)
    assert min(np.diff(sorted(offsets))) >= BYTES


def test_a_buffer_is_free_again_when_nobody_refers_to_it(buffers: BatchBuffers) -> None:
    buffer = buffers.acquire(1, BYTES)
    first = buffer.offset
    del buffer
    assert buffers.acquire(1, BYTES).offset == first


def test_a_lent_buffer_comes_back_with_the_last_view(buffers: BatchBuffers) -> None:
    buffer = buffers.acquire(1, BYTES)
    first = buffer.offset
    view = buffers.lend(buffer)[10:20].reshape(2, 5)
    del buffer
    assert buffers.acquire(1, BYTES).offset != first
    del view
    assert buffers.acquire(1, BYTES).offset == first


def test_past_the_bound_batches_are_copies(buffers: BatchBuffers, block: SharedBlock) -> None:
    kept = []
    for number in range(50):
        pixels = buffers.lend(buffers.acquire(1, BYTES))
        pixels[:] = number
        kept.append(pixels)
    assert [set(pixels.tolist()) for pixels in kept] == [{number} for number in range(50)]
    assert sum(pixels.flags.owndata for pixels in kept) == 50 - KEPT
    assert block.size == PAGE * (1 + DEPTH + KEPT)


def test_larger_batches_take_larger_slots_and_leave_those_that_are_held(
    buffers: BatchBuffers, block: SharedBlock
) -> None:
    """Also of what was made before the memory grew."""
    small = [buffers.acquire(samples, BYTES) for samples in (1, 2)]
    pixels = buffers.lend(small[0])
    pixels[:] = 7
    large = [buffers.acquire(samples, BYTES) for samples in (300, 1, 300)]
    for buffer in large:
        buffer.pixels[:] = 9
        buffer.table[:] = 9
    assert set(pixels.tolist()) == {7}
    sizes = sorted((buffer.offset, buffer.table.nbytes + buffer.pixels.nbytes) for buffer in (*small, *large))
    assert all(offset + size <= after for (offset, size), (after, _) in itertools.pairwise(sizes))
    assert set(buffer_at(block, large[2].offset, 300, BYTES, COLUMNS).pixels.tolist()) == {9}
    free = small[1].offset
    del small, pixels, buffer, large
    assert buffers.acquire(1, BYTES).offset > free  # too small for what may come


def test_each_growth_at_least_doubles_the_slots(buffers: BatchBuffers, block: SharedBlock) -> None:
    for samples in range(1, 2000):
        buffers.acquire(samples, BYTES)
    assert block.size <= 4 * (DEPTH + KEPT) * 2000 * (BYTES + 56) + PAGE


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS + 9])
def test_a_slot_has_room_for_the_rows_of_a_request_before_its_pixels(block: SharedBlock, columns: int) -> None:
    buffers = BatchBuffers(block, DEPTH, columns)
    first, second = (buffers.acquire(33, BYTES) for _ in range(2))
    for number, buffer in enumerate((first, second), 1):
        buffer.table[:], buffer.pixels[:] = number, number + 10
    for number, buffer in enumerate((first, second), 1):
        worker = buffer_at(block, buffer.offset, 33, BYTES, columns)
        assert worker.table.shape == (33, columns + 1)
        assert set(worker.table.ravel().tolist()) == {number}
        assert worker.pixels.shape == (33 * BYTES,)
        assert set(worker.pixels.tolist()) == {number + 10}
