"""one_ahead: each item is given once the next one has been made, and failures come in their place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from fastdata.device import one_ahead
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


def test_one_ahead_does_not_hold_an_interrupt_back() -> None:
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
