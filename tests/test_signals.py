"""Signals are held back for a few steps, and come after them."""

from __future__ import annotations

import signal
import threading

import pytest

from fastdata.signals import deferred_signals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals are POSIX's")


def test_a_signal_comes_when_the_block_is_left() -> None:
    before, steps = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), deferred_signals():
        steps.append(signal.raise_signal(signal.SIGINT))
    assert steps == [None]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_in_the_block_leaves_the_handlers_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="x"), deferred_signals():
        raise ValueError("x")
    assert signal.getsignal(signal.SIGINT) is before


def test_blocks_may_lie_in_one_another() -> None:
    with pytest.raises(KeyboardInterrupt), deferred_signals(), deferred_signals():
        signal.raise_signal(signal.SIGINT)


def test_every_signal_that_python_handles_is_held_back_and_comes() -> None:
    came: list[int] = []

    def handler(number: int, _frame: object) -> None:
        came.append(number)
        raise SystemExit(number)

    numbers = [signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        with pytest.raises(SystemExit), deferred_signals():
            early = [(signal.raise_signal(number), list(came)) for number in [*numbers, signal.SIGUSR1]]
        assert early == [(None, [])] * 4
        assert came == numbers
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def test_other_threads_go_through() -> None:
    done = []

    def work() -> None:
        with deferred_signals():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
