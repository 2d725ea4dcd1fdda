"""uninterrupted: a few steps that a signal must not tear apart, such as taking a lock and noting that it was taken."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back, where Python handles them, until the block is left; then they come.

    Only the main thread runs handlers, so others are never interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def hold(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, hold)
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        if came:
            signal.raise_signal(came[0])
