"""ImageStream: a state goes on where a run stood, in any epoch, for any workers, alone and in torch's DataLoader."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdata import ImageStream, LoadError, OptionError
from tests.test_stream import flat, labels, load, numbered

BATCHES = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return numbered(tmp_path / "set.h5")


def make(path: Path, **options: Any) -> ImageStream:
    return ImageStream(path, **{"shuffle": True, "batch_size": 4} | options)


def epochs(path: Path, *numbers: int, **options: Any) -> list[list[list[int]]]:
    """The batches of the epochs with these numbers, each from a stream of its own."""
    found = []
    for number in numbers:
        stream = make(path, **options)
        stream.set_epoch(number)
        found.append(labels(stream))
    return found


def broken(stream: ImageStream, epoch: int, had: int) -> dict[str, Any]:
    """The state of a run that ended after `had` batches of an epoch."""
    for _ in range(epoch):
        list(stream)
    taken = iter(stream)
    for _ in range(had):
        next(taken)
    state: dict[str, Any] = json.loads(json.dumps(stream.state_dict()))
    return state


@pytest.mark.parametrize("had", range(BATCHES + 1))
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_run_goes_on_where_it_stood(path: Path, epoch: int, had: int) -> None:
    state = broken(make(path), epoch, had)
    assert (state["epoch"], state["consumed"], state["over"]) == (epoch, had, had == BATCHES)
    stream = make(path)
    stream.load_state_dict(state)
    assert stream.state_dict() == state
    first, second, third = epochs(path, epoch, epoch + 1, epoch + 2)
    assert [labels(stream), labels(stream), labels(stream)] == [first[had:], second, third]


def test_after_a_whole_loop_the_state_is_the_next_epochs(path: Path) -> None:
    stream = make(path)
    list(stream)
    state = stream.state_dict()
    assert (state["epoch"], state["consumed"], state["over"]) == (1, 0, False)
    again = make(path)
    again.load_state_dict(state)
    iter(again)  # nothing is taken of it, so it uses nothing up
    assert [labels(again), labels(again)] == epochs(path, 1, 2)


@pytest.mark.parametrize("had", [0, 2, BATCHES])
def test_naming_the_states_epoch_keeps_its_position(path: Path, had: int) -> None:
    stream = make(path)
    stream.load_state_dict(broken(make(path), 1, had))
    found = []
    for epoch in (1, 2):
        stream.set_epoch(epoch)
        found.append(labels(stream))
    whole = epochs(path, 1, 2)
    assert found == [whole[0][had:], whole[1]]
    stream.set_epoch(1)  # without a state: anew
    assert labels(stream) == whole[0]
    stream.load_state_dict(broken(make(path), 1, had))
    stream.set_epoch(2)  # another one: from its start
    assert labels(stream) == whole[1]


@pytest.mark.slow
@pytest.mark.parametrize("had", [0, 3, BATCHES])
@pytest.mark.parametrize(("workers", "options"), [(1, {}), (2, {"persistent_workers": True}), (9, {})])
def test_a_loaded_state_reaches_the_workers_of_a_loader(
    path: Path, workers: int, options: dict[str, Any], had: int
) -> None:
    stream = make(path)
    loader = load(stream, workers, **options)
    list(loader)  # those that are kept live already when the state is loaded
    stream.load_state_dict(broken(make(path), 2, had))
    whole = epochs(path, 2, 3, 4)
    assert [labels(loader), labels(loader), labels(loader)] == [whole[0][had:], whole[1], whole[2]]


def test_single_samples_go_on_among_any_workers(path: Path) -> None:
    stream = make(path, batch_size=None)
    list(stream)
    taken = iter(stream)
    had = [int(next(taken)[1]) for _ in range(7)]
    again = make(path, batch_size=None)
    again.load_state_dict(stream.state_dict())
    assert sorted(had + flat(load(again, 3))) == list(range(23))


def test_a_state_of_what_workers_handed_out_is_refused(path: Path) -> None:
    stream = make(path)
    list(load(stream, 2))
    with pytest.raises(OptionError, match=r"read ahead.*StatefulDataLoader.*set_epoch"):
        stream.state_dict()
    stream.set_epoch(1)
    assert (stream.state_dict()["epoch"], stream.state_dict()["consumed"]) == (1, 0)
    list(stream)
    assert stream.state_dict()["epoch"] == 2


def test_what_lies_before_is_not_made_again(path: Path) -> None:
    made: list[int] = []

    def counted(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        made.append(1)
        return array

    stream = make(path, transform=counted)
    stream.load_state_dict(broken(make(path), 0, 4))
    assert [len(batch) for batch in labels(stream)] == [4, 3]
    assert len(made) == 7


def test_ranks_may_be_others_with_the_same_global_batch(path: Path) -> None:
    state = broken(make(path, batch_size=2, rank=1, world_size=4), 1, 1)
    ranks = []
    for rank in range(2):
        stream = make(path, rank=rank, world_size=2)
        stream.load_state_dict(state)
        ranks.append(labels(stream))
    assert ranks[0][0] + ranks[1][0] == epochs(path, 1, batch_size=8)[0][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "the state has seed 0, this stream 1"),
        ({"shuffle": False}, "shuffle True, this stream False"),
        ({"batch_size": 8}, "global_batch 4, this stream 8"),
        ({"buffer_size": 8}, "buffer_size 4096, this stream 8"),
        ({"drop_last": True}, "drop_last False, this stream True"),
        ({"even": "cut"}, "even 'pad', this stream 'cut'"),
        ({"pad": False}, "pad True, this stream False"),
        ({"batch_size": None}, "global_batch 4, this stream None"),
    ],
)
def test_states_of_another_order_are_refused(path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make(path, **change).load_state_dict(broken(make(path), 0, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": -1}, "the state's epoch must be an integer of at least 0, not -1"),
        ({"consumed": "1"}, "the state's consumed must be an integer"),
        ({"consumed": 7}, "7 items of an epoch behind it; an epoch has 6"),
        ({"version": 2}, "version 2, this stream 1"),
        ({"fingerprint": "x"}, "fingerprint 'x'"),
        ({"worker": 1, "workers": 3}, "worker 1 of 3, and this is a process without others.*num_workers=3"),
    ],
)
def test_invalid_states_are_refused(path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make(path).load_state_dict(broken(make(path), 0, 1) | change)
    for state in (None, {}, {"epoch": 0}):
        with pytest.raises(OptionError, match="not a state of"):
            make(path).load_state_dict(state)  # type: ignore[arg-type]


def test_copies_go_on_from_a_loaded_state(path: Path) -> None:
    stream = make(path)
    stream.load_state_dict(broken(make(path), 1, 2))
    again = copy.deepcopy(stream)
    whole = epochs(path, 1, 2)
    for one in (again, stream):
        assert [labels(one), labels(one)] == [whole[0][2:], whole[1]]


def test_an_error_keeps_the_position(path: Path) -> None:
    calls: list[int] = []

    def fails(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        calls.append(1)
        if len(calls) == 6:
            raise ValueError("no")
        return array

    stream = make(path, transform=fails)
    taken = iter(stream)
    next(taken)
    with pytest.raises(LoadError, match=r"set.h5: record .*no"):
        next(taken)
    assert list(taken) == []
    state = stream.state_dict()
    assert (state["epoch"], state["consumed"], state["over"]) == (0, 1, False)


def test_threads_may_take_turns(path: Path) -> None:
    taken = iter(make(path, batch_size=1))
    found: list[int] = []

    def take() -> None:
        found.extend(batch[1].item() for batch in taken)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(23))
