"""ImageStream in torchdata's StatefulDataLoader: the workers' states are collected, and each goes on from its own."""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from fastdata import ImageStream
from tests.test_stream import COUNT, labels, numbered, order
from tests.test_stream_state import BATCHES, broken, epochs, make

# torchdata calls what this torch has deprecated.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")]

WAYS = [
    (0, {}),
    (1, {}),
    (3, {}),
    (2, {"persistent_workers": True}),
    (8, {"persistent_workers": True}),  # more than there are batches
]
STARTED_ANEW = (2, {"persistent_workers": True, "multiprocessing_context": "forkserver"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return numbered(tmp_path / "set.h5")


def stateful(stream: ImageStream, workers: int, batch_size: int | None = None, **options: Any) -> Any:
    if workers:
        options = {"multiprocessing_context": "fork"} | options
    return StatefulDataLoader(stream, batch_size=batch_size, num_workers=workers, **options)


@pytest.mark.parametrize(
    ("workers", "options", "epoch", "had"),
    [(*way, *at) for way in WAYS for at in ((1, 0), (2, 4))] + [(*STARTED_ANEW, 1, 3)],
)
def test_a_loader_goes_on_where_it_stood(
    path: Path, workers: int, options: dict[str, Any], epoch: int, had: int
) -> None:
    loader = stateful(make(path), workers, **options)
    for _ in range(epoch):
        list(loader)
    taken = iter(loader)
    found = [next(taken)[1].tolist() for _ in range(had)]
    state = json.loads(json.dumps(loader.state_dict()))
    again = stateful(make(path), workers, **options)
    again.load_state_dict(state)
    whole = epochs(path, epoch, epoch + 1, epoch + 2)
    assert [found + labels(again), labels(again), labels(again)] == whole


@pytest.mark.parametrize(("workers", "options"), WAYS)
def test_states_at_the_end_of_an_epoch(path: Path, workers: int, options: dict[str, Any]) -> None:
    """Inside the loop nothing of the epoch follows; behind it, the next one does."""
    loader = stateful(make(path), workers, **options)
    list(loader)
    taken = iter(loader)
    for _ in range(BATCHES):
        next(taken)
    inside = loader.state_dict()
    assert next(taken, None) is None
    behind = loader.state_dict()
    whole = epochs(path, 2, 3)
    for state, expected in ((inside, [[], *whole]), (behind, whole)):
        again = stateful(make(path), workers, **options)
        again.load_state_dict(state)
        assert [labels(again) for _ in expected] == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_the_loader_makes(path: Path, workers: int) -> None:
    loader = stateful(make(path, batch_size=None), workers, 5)
    unbroken = [labels(loader), labels(loader)]
    for had in range(len(unbroken[1])):
        first = stateful(make(path, batch_size=None), workers, 5)
        list(first)
        taken = iter(first)
        found = [next(taken)[1].tolist() for _ in range(had)]
        again = stateful(make(path, batch_size=None), workers, 5)
        again.load_state_dict(first.state_dict())
        assert found + labels(again) == unbroken[1]
    assert sorted(n for batch in unbroken[1] for n in batch) == list(range(COUNT))


def test_a_state_that_was_loaded_before_the_workers_is_theirs(path: Path) -> None:
    """Loaded in the main process first, then saved and loaded by the workers."""
    stream = make(path)
    stream.load_state_dict(broken(make(path), 1, 1))
    loader = stateful(stream, 2)
    taken = iter(loader)
    found = [next(taken)[1].tolist() for _ in range(2)]
    again = stateful(make(path), 2)
    again.load_state_dict(loader.state_dict())
    whole = epochs(path, 1, 2)
    assert [found + labels(again), labels(again)] == [whole[0][1:], whole[1]]


def _rank(stream: ImageStream, pipe: Connection) -> None:
    pipe.send([order(stream), order(stream)])
    pipe.close()


def test_ranks_forked_from_a_loaded_stream_go_on_from_it(path: Path) -> None:
    stream = make(path)
    stream.load_state_dict(broken(make(path), 1, 2))
    whole = epochs(path, 1, 2)
    context = multiprocessing.get_context("fork")
    for expected in ([whole[0][2:], whole[1]], whole):
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(stream, theirs))
        process.start()
        theirs.close()
        assert ours.recv() == [[n for batch in epoch for n in batch] for epoch in expected]
        process.join()
        process.close()
        ours.close()
        list(stream)  # from here on, others that are forked begin the epoch anew
