"""uninterrupted: a few steps that a signal must not tear apart, such as taking a lock and noting that it was taken."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold signals back, where Python handles them, until the block is left; then they come, each once.

    Any handler may raise: a program's own for SIGUSR1 as well as Python's for SIGINT. Only the main thread runs
    handlers, so others are never interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def hold(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    try:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, hold)
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        with ExitStack() as all_of_them:  # also the later ones, where an earlier one raises
            for number in reversed(dict.fromkeys(came)):
                all_of_them.callback(signal.raise_signal, number)
