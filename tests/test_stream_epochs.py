"""ImageStream: epochs count themselves, in the main process and in workers alike."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fastdata import ImageStream, OptionError
from tests.test_stream import flat, load, numbered, order


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return numbered(tmp_path / "set.h5")


def expected(path: Path, *epochs: int) -> list[list[int]]:
    """The orders of the epochs with these numbers, each from a stream of its own."""
    orders = []
    for epoch in epochs:
        stream = ImageStream(path, shuffle=True, batch_size=4)
        stream.set_epoch(epoch)
        orders.append(order(stream))
    return orders


def test_the_order_changes_by_itself_and_is_reproducible(path: Path) -> None:
    stream = ImageStream(path, shuffle=True, batch_size=4)
    epochs = [order(stream) for _ in range(4)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert epochs == expected(path, 0, 1, 2, 3)
    assert order(ImageStream(path, shuffle=True, batch_size=4, seed=1)) not in epochs


WAYS = [
    (0, {}),
    (1, {}),
    (3, {}),
    (3, {"persistent_workers": True}),
    (2, {"persistent_workers": True, "multiprocessing_context": "forkserver"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "options"), WAYS)
def test_epochs_count_themselves(path: Path, workers: int, options: dict[str, Any]) -> None:
    """Over whole epochs, one that is broken off, and one with a number of its own."""
    stream = ImageStream(path, shuffle=True, batch_size=4)
    loader = load(stream, workers, **options)
    whole = expected(path, 0, 1, 2, 3, 7, 8)
    assert order(loader) == whole[0]
    assert order(loader) == whole[1]
    for batch in loader:
        assert batch[1].tolist() == whole[2][:4]
        break
    assert order(loader) == whole[3]
    stream.set_epoch(7)
    assert order(loader) == whole[4]
    assert order(loader) == whole[5]


@pytest.mark.slow
def test_epochs_count_themselves_in_spawned_workers(path: Path) -> None:
    loader = load(ImageStream(path, shuffle=True, batch_size=4), 2, multiprocessing_context="spawn")
    assert [order(loader), order(loader)] == expected(path, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_many_short_epochs_in_many_workers(path: Path, persistent: bool) -> None:
    """Epochs broken off at once, while some workers are still busy with the start of the last one."""
    stream = ImageStream(path, shuffle=True, batch_size=1)
    loader = load(stream, 6, persistent_workers=persistent, prefetch_factor=2)
    firsts = []
    for _ in range(12):
        for batch in loader:
            firsts.append(batch[1].item())
            break
    rest = order(loader)
    assert firsts == [epoch[0] for epoch in expected(path, *range(12))]
    assert rest == expected(path, 12)[0]


def test_a_generator_seeded_again_for_each_epoch(path: Path) -> None:
    """Then workers of different epochs get equal base seeds, and must not be taken for one round."""
    stream = ImageStream(path, shuffle=True, batch_size=4)
    epochs = [order(load(stream, 2, generator=torch.Generator().manual_seed(0))) for _ in range(3)]
    assert epochs == expected(path, 0, 1, 2)


def test_workers_and_main_process_share_the_count(path: Path) -> None:
    stream = ImageStream(path, shuffle=True, batch_size=4)
    assert [order(stream), order(load(stream, 2)), order(stream)] == expected(path, 0, 1, 2)


def test_an_epoch_is_claimed_by_iter(path: Path) -> None:
    stream = ImageStream(path, shuffle=True, batch_size=4)
    first, second = iter(stream), iter(stream)
    assert [order(second), order(first)] == expected(path, 1, 0)


class _SetsEpochInWorkers(torch.utils.data.IterableDataset[Any]):
    def __init__(self, stream: ImageStream, epoch: int) -> None:
        self.stream, self.epoch = stream, epoch

    def __iter__(self) -> Any:
        self.stream.set_epoch(self.epoch)
        return iter(self.stream)


def test_set_epoch_inside_workers_counts_there(path: Path) -> None:
    wrapped: Any = _SetsEpochInWorkers(ImageStream(path, shuffle=True, batch_size=4), 5)
    assert [order(load(wrapped, 3))] == expected(path, 5)


def test_set_epoch_takes_epochs_only(path: Path) -> None:
    stream = ImageStream(path)
    for value in (-1, "1", True, 1.0):
        with pytest.raises(OptionError, match="epoch must be an integer of at least 0"):
            stream.set_epoch(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))])
def test_copies_count_for_themselves_from_here_on(path: Path, way: Any) -> None:
    stream = ImageStream(path, shuffle=True, batch_size=4)
    order(stream)
    again = way(stream)
    assert [order(again), order(again)] == expected(path, 1, 2)
    assert [order(stream)] == expected(path, 1)


def _rank(stream: ImageStream, pipe: Connection) -> None:
    pipe.send([order(stream), order(load(stream, 2))])
    pipe.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_started_with_one_stream_count_each_for_itself(path: Path, method: str) -> None:
    stream = ImageStream(path, shuffle=True, batch_size=4)
    stream.set_epoch(3)
    context = multiprocessing.get_context(method)
    for _ in range(2 if method == "fork" else 1):  # a spawned process imports torch: one will do
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(stream, theirs))
        process.start()
        theirs.close()
        assert ours.recv() == expected(path, 3, 4)
        process.join()
        process.close()
        ours.close()


def test_more_workers_than_there_are_bits_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ImageStream(path)
    info = SimpleNamespace(id=0, num_workers=1025, seed=5)
    monkeypatch.setattr("torch.utils.data.get_worker_info", lambda: info)
    with pytest.raises(OptionError, match="num_workers=1025: a stream serves at most 1024 workers"):
        iter(stream)
    info.num_workers = 1024
    info.id = 1023
    assert flat(stream) == [22]
    info.id = 0
    assert flat(stream) == []  # more workers than samples
