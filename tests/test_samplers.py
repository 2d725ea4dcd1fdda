"""Samplers of fastdata.DataLoader: drawn when the epoch begins or batch by batch, ended when they end, never waited for
in vain."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import RandomSampler

import fastdata
from fastdata.fields.selection import Selection
from fastdata.loader import draws
from fastdata.loader.settings import checked
from fastdata.order import numbered
from tests.loader_targets import Fails
from tests.test_loader_faults import IDS, WORKERS
from tests.test_loader_faults import path as path

COUNT = 24


class Sampler:
    """Gives what a function gives, of a told length or none; notes how much was drawn, and the epochs it was told."""

    def __init__(self, items: Callable[[], Iterable[Any]], length: int | None = None) -> None:
        self.items, self.drawn, self.length = items, 0, length

    def __iter__(self) -> Iterator[Any]:
        for item in self.items():
            self.drawn += 1
            yield item


class Sized(Sampler):
    def __len__(self) -> int:
        assert self.length is not None
        return self.length


def loader(data: str, sampler: Any, batch_size: int = 4, **options: Any) -> fastdata.DataLoader:
    options = {"num_workers": 0, "fields": ("index",)} | options
    return fastdata.DataLoader(data, batch_size, sampler=sampler, **options)


def taken(batches: Iterable[Any], most: int | None = None) -> list[list[int]]:
    return [batch["index"].tolist() for batch in itertools.islice(batches, most)]


def endless() -> Iterator[int]:
    return itertools.cycle(range(COUNT))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("timeout", [0, 60])
def test_an_endless_sampler_is_drawn_as_it_is_needed(path: str, workers: dict[str, Any], timeout: float) -> None:
    sampler = Sampler(endless)
    with loader(path, sampler, timeout=timeout, fields=("index", "image"), **workers) as batches:
        iterator = iter(batches)
        assert sampler.drawn == 0
        assert taken(iterator, 7) == [[(4 * k + i) % COUNT for i in range(4)] for k in range(7)]
        assert sampler.drawn <= 4 * (7 + 4 + 1)
        with pytest.raises(TypeError, match="give it a __len__"):
            len(batches)
        iterator.close()


@pytest.mark.parametrize("length", [1, 6, 8, 10])
def test_a_length_is_drawn_at_once_and_the_rest_as_it_is_needed(path: str, length: int) -> None:
    sampler = Sized(endless, length)
    batches = loader(path, sampler)
    iterator = iter(batches)
    assert sampler.drawn == length
    assert taken(iterator, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert len(batches) == -(-length // 4)


def test_what_is_too_long_to_be_drawn_at_once_is_not(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_MOST_AT_ONCE", 8)
    for length, drawn in ((8, 8), (9, 0)):
        sampler = Sized(endless, length)
        iter(loader(path, sampler))
        assert sampler.drawn == drawn


@given(
    given_length=st.none() | st.integers(1, 30), real=st.integers(1, 30), size=st.integers(1, 9),
    drop_last=st.booleans(), timeout=st.sampled_from([0, 60]), first=st.integers(0, 4),
)  # fmt: skip
@settings(max_examples=200)
def test_an_epoch_ends_when_the_sampler_does(
    given_length: int | None, real: int, size: int, drop_last: bool, timeout: float, first: int
) -> None:
    """Sooner or later than the length that it tells."""
    order = [7 * i % COUNT for i in range(real)]
    sampler = Sampler(lambda: order) if given_length is None else Sized(lambda: order, given_length)
    want = [order[start : start + size] for start in range(0, real, size)]
    if drop_last and real % size:
        del want[-1]
    names = ("batch_size", "drop_last", "timeout", "sampler")
    chosen = checked(COUNT, defaults() | dict(zip(names, (size, drop_last, timeout, sampler), strict=True)))
    if not want or (given_length is not None and drop_last and given_length < size):
        with pytest.raises(fastdata.OptionError, match=r"no batch|without a batch"):
            draws.Drawn(chosen, COUNT, 0).batch(0)
        return
    drawn = draws.Drawn(chosen, COUNT, 0, first)
    found = []
    while (wanted := drawn.batch(first + len(found))) is not None:
        found.append(wanted)
        assert set(wanted.records.tolist()) <= set(wanted.pool.tolist()) <= set(order)
    assert [wanted.records.tolist() for wanted in found] == want[first:]
    assert drawn.total == len(want)
    assert drawn.consumed(len(want)) == sum(map(len, want))
    occurrences = numbered(np.array(order)).tolist()
    assert [o for wanted in found for o in wanted.occurrences.tolist()] == occurrences[
        first * size : sum(map(len, want))
    ]


def defaults() -> dict[str, Any]:
    return {
        "batch_size": 1, "shuffle": False, "selection": Selection(("image", "label"), False, "label", ()),
        "sampler": None, "batch_sampler": None, "indices": None,
        "repeats": 1, "views": 1, "num_workers": 0, "worker_mode": "process", "drop_last": False, "pad": True,
        "even": "pad", "seed": 0, "rank": None, "world_size": None, "on_error": "raise", "collate_fn": None,
        "pin_memory": False, "prefetch_factor": 2, "persistent_workers": True, "verify": True, "timeout": 0,
        "multiprocessing_context": None,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [Sampler, Sized])
@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_an_error_of_a_sampler_comes_in_its_place(path: str, kind: type[Sampler], workers: dict[str, Any]) -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise ZeroDivisionError

    with loader(path, kind(items, 8), fields=("index", "image"), **workers) as batches:
        iterator, seen = iter(batches), []
        with pytest.raises(ZeroDivisionError):
            seen.extend(batch["index"].tolist() for batch in iterator)
        assert batches.state_dict()["consumed"] == 8
        assert list(iterator) == []


@pytest.mark.parametrize("kind", [Sampler, Sized])
def test_the_timeout_counts_between_indices(path: str, kind: type[Sampler]) -> None:
    freed = threading.Event()

    def items() -> Iterator[int]:
        yield from range(6)
        freed.wait()

    with loader(path, kind(items, 8), timeout=0.2) as batches:
        with pytest.raises(fastdata.WorkerError, match=r"sampler gave no index within timeout=0\.2 seconds"):
            list(batches)
        freed.set()


def test_a_slow_sampler_is_no_stuck_one(path: str) -> None:
    """Each index comes in time, though together they take longer."""

    def items() -> Iterator[int]:
        for index in range(12):
            time.sleep(0.05)
            yield index

    assert taken(loader(path, Sampler(items), batch_size=12, timeout=0.5)) == [list(range(12))]


def test_nothing_is_asked_of_a_sampler_that_has_ended(path: str) -> None:
    class Revives:
        left: ClassVar = [3, 2, 1]

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if not self.left:
                self.left.append(9)
                raise StopIteration
            return self.left.pop()

    assert taken(loader(path, Revives(), batch_size=2)) == [[1, 2], [3]]


@pytest.mark.parametrize("timeout", [0, 60])
@pytest.mark.parametrize("kind", [Sampler, Sized])
def test_ctrl_c_reaches_a_sampler_that_gives_nothing(path: str, kind: type[Sampler], timeout: float) -> None:
    stopped, waiting = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 3
        waiting.set()
        while not stopped.wait(0.01):
            pass

    def interrupt() -> None:
        waiting.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader(path, kind(items, 4), timeout=timeout)))
    stopped.set()
    sender.join()


@pytest.mark.parametrize("given_sampler", [5, "123", None.__class__])
def test_what_is_no_sampler_is_refused_at_once(path: str, given_sampler: Any) -> None:
    with pytest.raises(fastdata.OptionError, match="sampler must be an iterable of indices"):
        loader(path, given_sampler)


@pytest.mark.parametrize("item", ["x", 1.5, None, [1, 2], (1, 2, 3), (1, -1), (1, 0.5), 1 << 70, (1, 1 << 63)])
@pytest.mark.parametrize("kind", [Sampler, Sized])
def test_what_is_no_index_is_named(path: str, item: Any, kind: type[Sampler]) -> None:
    with pytest.raises(fastdata.OptionError, match=r"sampler gave .*\(index, occurrence\).*is a batch_sampler"):
        next(iter(loader(path, kind(lambda: [item], 1))))


@pytest.mark.parametrize("item", [-1, COUNT, (COUNT, 0)])
def test_indices_beyond_the_data_are_named(path: str, item: Any) -> None:
    for kind in (Sampler, Sized):
        with pytest.raises(fastdata.OptionError, match="they must be integers from 0 to 23"):
            next(iter(loader(path, kind(lambda: [0, item], 2))))


def test_other_integers_are_indices(path: str) -> None:
    items = [np.int32(3), torch.tensor(4), np.array(5), True, (np.int64(6), torch.tensor(2))]
    assert taken(loader(path, items, batch_size=5)) == [[3, 4, 5, 1, 6]]


@pytest.mark.parametrize("items", [[], iter(())])
def test_a_sampler_that_gives_nothing_is_an_error(path: str, items: Any) -> None:
    with pytest.raises(fastdata.OptionError, match=r"no samples|no indices"):
        next(iter(loader(path, items)))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_a_replacement_comes_from_what_was_drawn(
    path: str, workers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the last ones only, and the same ones after a resume; nothing that the sampler left out."""
    monkeypatch.setattr(draws, "_RECENT", 8)

    def items() -> Iterator[int]:
        yield from [0, 1, 2, 3]
        while True:
            yield from range(10, 20)

    options: dict[str, Any] = {"on_error": "skip", "transform": Fails({12, 17}), "fields": ("index", "image")} | workers
    with loader(path, Sampler(items), **options) as batches:
        iterator = iter(batches)
        seen = taken(iterator, 5)
        state = batches.state_dict()
        following = taken(iterator, 5)
    assert set(itertools.chain(*seen)) <= {0, 1, 2, 3} | set(range(10, 20)) - {12, 17}
    assert all(index >= 10 for batch in [*seen[3:], *following] for index in batch)
    with loader(path, Sampler(items), **options | {"num_workers": 0, "worker_mode": "process"}) as again:
        assert taken(again, 5) == seen
        again.load_state_dict(state)
        assert taken(again, 5) == following


def test_what_a_sampler_draws_at_once_does_not_touch_the_program_later(path: str) -> None:
    def drawn(sampler: Any) -> list[float]:
        random.seed(3)
        return [random.random() for _ in loader(path, sampler)]

    def items() -> Iterator[int]:
        return (random.randrange(COUNT) for _ in range(12))

    random.seed(3)
    assert len(list(items())) == 12
    want = [random.random() for _ in range(3)]
    assert drawn(Sized(items, 12)) == want
    assert drawn(Sampler(items)) != want


def test_a_random_sampler_gives_the_orders_that_it_gives_by_itself(path: str) -> None:
    def sampler() -> RandomSampler:
        return RandomSampler(range(COUNT), generator=torch.Generator().manual_seed(1))

    alone = sampler()
    batches = loader(path, sampler(), COUNT)
    assert [taken(batches) for _ in range(3)] == [[list(alone)] for _ in range(3)]
