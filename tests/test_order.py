"""Order: permutations, mixing and the division of positions, as properties."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import OptionError
from fastdata.order import EpochOrder, Split, check_end, numbered, permutation, run_length

counts = st.integers(1, 3000)
buffers = st.integers(1, 5000)
seeds = st.integers(-(2**70), 2**70)


@given(counts, buffers, seeds, st.integers(0, 2**40))
def test_every_sample_stands_somewhere_once(count: int, buffer: int, seed: int, epoch: int) -> None:
    indices = EpochOrder(count, seed, epoch, buffer).indices(0, count)
    assert indices.dtype == np.int64
    assert np.array_equal(np.sort(indices), np.arange(count))


@given(counts, buffers, st.data())
def test_any_stretch_is_the_same_as_in_the_whole(count: int, buffer: int, data: st.DataObject) -> None:
    whole = EpochOrder(count, 3, 5, buffer).indices(0, count)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count + 40))
    expected = whole[np.arange(start, stop) % count]
    assert np.array_equal(EpochOrder(count, 3, 5, buffer).indices(start, stop), expected)


def test_without_a_buffer_records_keep_their_order() -> None:
    assert EpochOrder(5).indices(3, 8).tolist() == [3, 4, 0, 1, 2]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    orders = {(s, e): tuple(EpochOrder(500, s, e, 100).indices(0, 500).tolist()) for s in range(4) for e in range(4)}
    assert len(set(orders.values())) == 16
    assert orders[2, 3] == tuple(EpochOrder(500, 2, 3, 100).indices(0, 500).tolist())


def test_the_order_is_the_released_one() -> None:
    """Changing it changes every user's epochs: that is a breaking change, to be said in the changelog."""
    assert permutation(0, 0, 0, 10).tolist() == [1, 6, 5, 4, 8, 3, 7, 9, 2, 0]
    stretch = EpochOrder(100_000, 1, 2, 4096).indices(50_000, 50_006)
    assert stretch.tolist() == [50016, 67488, 32331, 92032, 50687, 72548]


def test_a_window_mixes_many_runs() -> None:
    """A batch from a set sorted by class must not be made of a few neighbours."""
    batch = EpochOrder(100_000, 0, 0, 4096).indices(30_000, 30_256)
    assert len(np.unique(batch // 1000)) > 60  # of 100 "classes"; 256 draws at random would give 92


def test_reads_come_in_runs() -> None:
    """What one window holds, sorted, is stretches of consecutive records."""
    window = np.sort(EpochOrder(100_000, 0, 0, 4096).indices(40_000, 44_096))
    stretches = 1 + int(np.count_nonzero(np.diff(window) > 8))
    assert stretches < 4096 / 8


def test_runs_stay_long_enough_for_huge_sets() -> None:
    assert run_length(10**9, 4096) >= 10**9 >> 20
    assert run_length(100, 1) == 1
    assert run_length(10**6, 10**6) == 64


def test_huge_sets_take_little_memory() -> None:
    order = EpochOrder(10**9, 0, 0, 4096)
    assert order._runs.nbytes <= 8 << 20
    assert len(set(order.indices(10**9 - 50, 10**9).tolist())) == 50


splits = st.builds(
    Split,
    count=st.integers(0, 300),
    world_size=st.integers(1, 9),
    batch_size=st.integers(1, 40) | st.none(),
    drop_last=st.booleans(),
    pad=st.booleans(),
    even=st.sampled_from(["pad", "cut"]),
)


@given(splits, st.integers(1, 7))
def test_workers_cover_their_ranks(split: Split, workers: int) -> None:
    for rank in range(split.world_size):
        by_worker = [split.spans(rank, worker, workers) for worker in range(workers)]
        count = split.batches_of(rank)
        spans = [split.span(rank, batch) for batch in range(count)]
        if split.batch_size:
            merged = [by_worker[k % workers][k // workers] for k in range(count)]
            assert merged == spans
        positions = sorted(p for part in by_worker for start, stop in part for p in range(start, stop))
        assert len(positions) == split.samples_of(rank)
        assert positions == sorted(p for start, stop in spans for p in range(start, stop))


@given(splits)
def test_ranks_get_equally_much_or_differ_by_a_sample(split: Split) -> None:
    counts = [split.samples_of(rank) for rank in range(split.world_size)]
    assert max(counts) - min(counts) <= (not split.pad)
    assert counts == sorted(counts, reverse=True)
    assert (split.samples, split.batches) == (counts[0], split.batches_of(0))
    batches = [split.batches_of(rank) for rank in range(split.world_size)]
    assert max(batches) - min(batches) <= (not split.pad)


@given(splits)
def test_dealt_positions_are_the_same_ones_in_other_hands(split: Split) -> None:
    dealt = dataclasses.replace(split, dealt=True)
    for batch in range(split.batches):
        ranks = [rank for rank in range(split.world_size) if batch < split.batches_of(rank)]
        taken = [dealt.positions(rank, batch) for rank in ranks]
        assert [len(part) for part in taken] == [len(split.positions(rank, batch)) for rank in ranks]
        union = sorted(p for part in taken for p in part)
        assert union == sorted(p for rank in ranks for p in split.positions(rank, batch))
        for part in taken:
            assert set(np.diff(part).tolist()) <= {split.world_size}


@given(splits)
def test_each_position_once_but_for_padding_or_dropping(split: Split) -> None:
    seen = [p for rank in range(split.world_size) for start, stop in split.spans(rank) for p in range(start, stop)]
    assert len(set(seen)) == len(seen)
    whole = split.world_size * (split.batch_size or 1)
    if split.batch_size and split.drop_last:
        assert sorted(seen) == list(range(split.count // whole * whole))
    elif not split.pad:
        assert sorted(seen) == list(range(split.count))
    elif split.even == "pad":
        assert sorted(seen) == list(range(-(-split.count // split.world_size) * split.world_size))
    else:
        assert sorted(seen) == list(range(split.count // split.world_size * split.world_size))


@given(st.integers(0, 300), st.sampled_from([1, 2, 3, 4, 6, 12]), st.booleans())
def test_the_union_of_the_kth_batches_is_the_same_for_any_world_size(count: int, size: int, drop: bool) -> None:
    single = Split(count, 1, 12, drop)
    many = Split(count, size, 12 // size, drop)
    assert many.batches == single.batches
    for k in range(single.batches):
        union = sorted(p for rank in range(size) for p in range(*many.span(rank, k)))
        start, stop = single.span(0, k)
        assert union[: stop - start] == list(range(start, stop))
        assert len(union) - (stop - start) < size


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Split(0), "no samples"),
        (Split(3, world_size=4, even="cut"), "3 samples for 4 ranks.*use fewer ranks, pad=False instead"),
        (Split(23, world_size=4, batch_size=8, drop_last=True), "23 samples for 4 ranks, batch_size 8"),
        (Split(3, world_size=4, batch_size=8, even="cut"), 'even="cut"'),
        (Split(1, batch_size=8, drop_last=True), "use a smaller batch_size, or drop_last=False$"),
    ],
)
def test_ranks_without_a_batch_are_an_error(split: Split, message: str) -> None:
    assert not split.batches
    with pytest.raises(OptionError, match=message):
        split.check("set")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad": False, "even": "cut", "drop_last": False}, "pad=False leaves no sample out"),
        ({"pad": False, "even": "pad", "drop_last": True}, "drop_last=True"),
        ({"pad": True, "even": "even", "drop_last": True}, "must be 'pad' or 'cut', not 'even'"),
        ({"batch_size": None, "pad": True, "even": "pad", "drop_last": True}, "drop_last=True needs a batch_size"),
    ],
)
def test_ends_that_exclude_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_end(**{"batch_size": 4} | options)


@given(st.lists(st.integers(0, 5), max_size=60))
def test_records_are_numbered_in_their_order(records: list[int]) -> None:
    want = [records[:at].count(record) for at, record in enumerate(records)]
    assert numbered(np.array(records, np.int64)).tolist() == want
