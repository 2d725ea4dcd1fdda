"""one_ahead: each item is given once the next one has been made, and failures are raised in their turn."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fastdata
from fastdata.device import Progress, one_ahead
from tests.test_device import Broken, each


def test_one_ahead_makes_the_next_before_it_gives_one() -> None:
    log: list[str] = []

    def made() -> Iterator[int]:
        for item in range(3):
            log.append(f"made {item}")
            yield item

    for item in one_ahead(made()):
        log.append(f"used {item}")
    assert log == ["made 0", "made 1", "used 0", "made 2", "used 1", "used 2"]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_one_ahead_gives_all_and_then_fails_in_place(count: int) -> None:
    assert list(one_ahead(iter(range(count)))) == list(range(count))

    def failing() -> Iterator[int]:
        yield from range(count)
        raise Broken

    got: list[int] = []
    with pytest.raises(Broken):
        each(one_ahead(failing()), got.append)
    assert got == list(range(count))


def test_one_ahead_raises_an_interrupt_at_once() -> None:
    def interrupted() -> Iterator[int]:
        yield 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(one_ahead(interrupted()))


def test_a_failure_leaves_no_cycle_behind() -> None:
    class Held:
        pass

    def failing(held: Held) -> Iterator[int]:
        yield 0
        raise Broken(held)

    def run() -> weakref.ref[Held]:
        held = Held()
        with pytest.raises(Broken):
            list(one_ahead(failing(held)))
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


def test_a_state_is_that_of_the_batch_that_was_delivered(photo_folder: Path) -> None:
    """As around a fastdata loader on CUDA: the loader is one batch ahead of the training loop."""
    loader = fastdata.DataLoader(str(photo_folder), 4, num_workers=0, fields=("index",))
    progress = Progress(loader)
    seen = []
    for _ in one_ahead(progress.recording(iter(loader))):
        progress.deliver()
        state = progress.as_delivered(loader.state_dict())
        seen.append((state["epoch"], state["consumed"], state["over"]))
    assert seen == [(0, 4, False), (0, 8, False), (0, 12, True)]
    progress.deliver()  # the end
    assert progress.as_delivered(loader.state_dict()) == loader.state_dict()
    loader.set_epoch(7)
    assert progress.as_delivered(loader.state_dict())["epoch"] == 7


def test_the_prefetcher_resumes_a_loader(photo_folder: Path) -> None:
    def ahead() -> fastdata.CUDAPrefetcher[dict[str, torch.Tensor]]:
        return fastdata.CUDAPrefetcher(
            fastdata.DataLoader(str(photo_folder), 4, num_workers=0, fields=("index",), shuffle=True), "cpu"
        )

    first, second = ahead(), ahead()
    batches = [batch["index"].tolist() for batch in first]
    iterator = iter(second)
    next(iterator)
    first.load_state_dict(second.state_dict())
    assert [batch["index"].tolist() for batch in first] == batches[1:]


def test_other_loaders_are_not_asked_for_states() -> None:
    class Loader:
        def state_dict(self) -> None:
            raise AssertionError

    assert list(Progress(Loader()).recording(iter([1, 2]))) == [1, 2]
