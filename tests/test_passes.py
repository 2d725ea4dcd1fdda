"""Which epoch each iterator of a loader gives, and what its state says, in the middle and at the borders of epochs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdata
from fastdata import device
from tests.test_loader_faults import path as path
from tests.test_samplers import Sampler, Sized

COUNT = 24
T = TypeVar("T")


class Passage(Generic[T]):
    """The way over a device's side stream, without a device."""

    def __init__(self, *_: Any) -> None:
        pass

    def start_next(self, batches: Iterator[Any]) -> Any:
        return next(batches, None)

    def deliver(self, copied: Any) -> Any:
        return copied

    def finish(self) -> None:
        pass


@pytest.fixture(autouse=True, scope="module")
def _without_a_device() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_Passage", Passage)
        yield


def prefetched(loader: fastdata.DataLoader) -> Any:
    return fastdata.CUDAPrefetcher(loader, "cpu")


def ahead(loader: fastdata.DataLoader) -> Any:
    """As on CUDA: one batch has left the loader that the consumer has not had yet."""
    prefetcher = prefetched(loader)
    prefetcher.device, prefetcher._side_stream = SimpleNamespace(type="cuda"), object()
    return prefetcher


WAYS = {"loader": lambda loader: loader, "prefetcher": prefetched, "ahead": ahead}
way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def made(path: Any, batch_size: int = 5, **options: Any) -> fastdata.DataLoader:
    options = {"num_workers": 0, "fields": ("index",), "shuffle": "sampler" not in options} | options
    return fastdata.DataLoader(path, batch_size, **options)


def rows(batch: Any) -> tuple[int, ...]:
    return tuple(batch["index"].tolist())


def trained(loader: Any, first: int, stop: int | None, *, named: bool, last: int = 3) -> tuple[list[Any], Any]:
    """What a training loop sees from an epoch on, and the checkpoint that it saved when it had seen `stop` batches."""
    seen: list[Any] = []
    for epoch in range(first, last):
        if named:
            loader.set_epoch(epoch)
        for batch in loader:
            seen.append((epoch, rows(batch)))
            if len(seen) == stop:
                return seen, json.loads(json.dumps({"epoch": epoch, "loader": loader.state_dict()}))
    return seen, None


ENDS = [
    {}, {"drop_last": True}, {"pad": False}, {"even": "cut"}, {"repeats": 2}, {"batch_size": 8}, {"batch_size": 99},
]  # fmt: skip
SAMPLERS = [Sampler, Sized]


@pytest.mark.slow
@way
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("options", [*ENDS, *SAMPLERS], ids=repr)
def test_a_run_resumes_behind_any_batch(path: str, way: Any, named: bool, options: Any) -> None:
    if not isinstance(options, dict):
        options = {"sampler": options(lambda: range(COUNT), COUNT)}
    whole, _ = trained(way(made(path, **options)), 0, None, named=named)
    for stop in range(1, len(whole)):
        before, saved = trained(way(made(path, **options)), 0, stop, named=named)
        again = way(made(path, **options))
        again.load_state_dict(saved["loader"])
        after, _ = trained(again, saved["epoch"], None, named=named)
        assert before + after == whole


@pytest.mark.slow
@given(
    batch_size=st.integers(1, 9), size=st.integers(1, 5), end=st.sampled_from(ENDS[:5]), data=st.data(),
    named=st.booleans(), saver=st.integers(0, 4),
)  # fmt: skip
@settings(max_examples=50)
def test_any_ranks_state_is_that_of_all(
    path: str, batch_size: int, size: int, end: dict[str, Any], data: st.DataObject, named: bool, saver: int
) -> None:
    """Also where the ranks do not have equally many batches."""

    def loader(rank: int) -> fastdata.DataLoader:
        return made(path, **{"batch_size": batch_size, "rank": rank, "world_size": size} | end)

    def numbered(seen: list[Any]) -> list[tuple[int, int, Any]]:
        return [(epoch, sum(e == epoch for e, _ in seen[:at]), batch) for at, (epoch, batch) in enumerate(seen)]

    whole = [numbered(trained(loader(rank), 0, None, named=named, last=2)[0]) for rank in range(size)]
    saver %= size
    stop = data.draw(st.integers(1, max(1, len(whole[saver]))))
    _, saved = trained(loader(saver), 0, stop, named=named, last=2)
    if saved is None:  # a rank without a batch
        return
    epoch, number, _ = whole[saver][stop - 1]
    for rank in range(size):
        again = loader(rank)
        again.load_state_dict(saved["loader"])
        after, _ = trained(again, epoch, None, named=named, last=2)
        assert after == [(e, batch) for e, n, batch in whole[rank] if e > epoch or (e == epoch and n > number)]


@way
def test_a_state_behind_the_last_batch_says_that_the_epoch_is_over(path: str, way: Any) -> None:
    loader = way(made(path))
    states = []
    for _ in loader:
        states.append(loader.state_dict())
    states.append(loader.state_dict())
    assert [(s["epoch"], s["consumed"], s["over"]) for s in states] == [
        (0, 5, False), (0, 10, False), (0, 15, False), (0, 20, False), (0, 24, True), (1, 0, False),
    ]  # fmt: skip
    over = states[-2]
    first = [rows(batch) for batch in made(path)]
    second = [rows(batch) for batch in loader]
    for names, want in (
        ([None], []),
        ([0], []),
        ([None, None], second),
        ([0, None], second),
        ([0, 1], second),
        ([1], second),
        ([0, 0], first),
        ([1, 0], first),
    ):
        loader.load_state_dict(over)
        assert loader.state_dict() == over
        found: list[Any] = []
        for epoch in names:
            if epoch is not None:
                loader.set_epoch(epoch)
            found = [rows(batch) for batch in loader]
        assert found == want, names
    loader.load_state_dict(over)
    assert list(loader) == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["consumed"]) == (1, 0)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ({}, {"drop_last": True}),
        ({"drop_last": True}, {}),
        ({}, {"repeats": 2}),
        ({"pad": False}, {}),
        ({"even": "cut"}, {"pad": False}),
    ],
)
def test_how_an_epoch_ends_belongs_to_the_state(path: str, there: dict[str, Any], here: dict[str, Any]) -> None:
    with pytest.raises(fastdata.OptionError, match=next(iter(there | here))):
        made(path, **here).load_state_dict(made(path, **there).state_dict())


@pytest.mark.parametrize("change", [{"over": 1}, {"over": None}, {"version": 1}])
def test_a_state_of_another_kind_is_refused(path: str, change: dict[str, Any]) -> None:
    loader = made(path)
    with pytest.raises(fastdata.OptionError, match=next(iter(change))):
        loader.load_state_dict(loader.state_dict() | change)


@way
def test_naming_an_epoch_without_a_loaded_state_starts_it_anew(path: str, way: Any) -> None:
    loader = way(made(path))
    iterator = iter(loader)
    first = [rows(next(iterator)) for _ in range(3)]
    loader.set_epoch(0)
    assert [rows(batch) for batch in loader][:3] == first
    loader.set_epoch(0)
    assert [rows(batch) for batch in loader][:3] == first


@way
def test_an_iterator_that_exists_keeps_its_epoch(path: str, way: Any) -> None:
    loader = way(made(path))

    def first(epoch: int) -> Any:
        loader.set_epoch(epoch)
        return rows(next(iter(loader)))

    want = {epoch: first(epoch) for epoch in (0, 7, 8, 100)}
    loader.set_epoch(100)
    iterator = iter(loader)
    loader.set_epoch(7)
    assert rows(next(iterator)) == want[100]
    assert rows(next(iter(loader))) == want[7]
    assert rows(next(iter(loader))) == want[8]


@way
@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_from_which_nothing_is_drawn_uses_up_no_epoch(path: str, way: Any, workers: int) -> None:
    """As Lightning calls `iter` once more, before the first one is dropped."""
    fresh = made(path)
    want = [[rows(batch) for batch in fresh] for _ in range(2)]
    loader = way(made(path, num_workers=workers))
    for epoch in range(2):
        spare = iter(loader)
        before = loader.state_dict()
        batches = iter(loader)
        assert loader.state_dict() == before
        del spare
        assert [rows(batch) for batch in batches] == want[epoch]
    loader.set_epoch(0)
    batches = iter(loader)
    assert rows(next(batches)) == want[0][0]
    state = loader.state_dict()
    iter(loader)
    assert loader.state_dict() == state
    assert [rows(batch) for batch in batches] == want[0][1:]
    loader.load_state_dict(state)
    iter(loader)
    assert [rows(batch) for batch in loader] == want[0][1:]


@way
def test_two_iterators_at_once_are_two_epochs(path: str, way: Any) -> None:
    fresh = made(path)
    want = [[rows(batch) for batch in fresh] for _ in range(3)]
    loader = way(made(path))
    pairs = [(rows(first), rows(second)) for first, second in zip(loader, loader, strict=True)]
    assert pairs == list(zip(*want[:2], strict=True))
    assert [rows(batch) for batch in loader] == want[2]
    loader.load_state_dict(made(path).state_dict() | {"epoch": 1, "consumed": 10})
    first, second = iter(loader), iter(loader)
    assert [rows(batch) for batch in second] == want[1][2:]
    assert [rows(batch) for batch in first] == want[2]


@pytest.mark.parametrize("workers", [{"num_workers": 0}, {"num_workers": 1}])
def test_a_prefetcher_begins_nothing_before_it_is_drawn_from(path: str, workers: dict[str, Any]) -> None:
    sampler = Sampler(lambda: range(COUNT))
    prefetcher = fastdata.CUDAPrefetcher(made(path, sampler=sampler, **workers), "cpu")
    iterator = iter(prefetcher)
    assert sampler.drawn == 0
    assert rows(next(iterator)) == (0, 1, 2, 3, 4)


def test_a_sampler_is_told_the_epoch_that_it_is_drawn_for(path: str) -> None:
    class Told(Sampler):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    for kind in (Told, type("ToldSized", (Told, Sized), {})):
        sampler = kind(lambda: [sampler.epoch] * 4, 4)  # noqa: B023
        batches = made(path, 4, sampler=sampler)
        iter(batches)
        first, second = iter(batches), iter(batches)
        assert [rows(batch) for each in (first, second, batches) for batch in each] == [(0,) * 4, (1,) * 4, (2,) * 4]


def test_two_iterators_draw_once_each(path: str) -> None:
    """Though the second one turns out to be another epoch: its sampler is not told of epochs."""
    sampler = Sized(lambda: iter([sampler.drawn] * 4), 4)
    batches = made(path, 4, sampler=sampler)
    pairs = list(zip(batches, batches, strict=True))
    assert [(a["index"].tolist(), b["index"].tolist()) for a, b in pairs] == [([0] * 4, [4] * 4)]
