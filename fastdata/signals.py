"""Signals: only the main process handles them; workers ignore them and end with the main process.

A terminal sends Ctrl-C, and a scheduler its warning before the end, to every process of a job. So workers ignore such
signals from the start: the signals are blocked while a worker is being started, and the worker inherits this until it
ignores them. Steps that must not be interrupted by a handler that raises run within `deferred_signals`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any


def _numbers(*names: str) -> frozenset[int]:
    return frozenset(int(getattr(signal, name)) for name in names if hasattr(signal, name))


# Signals that a terminal or a scheduler sends to every process of a job.
SENT_TO_ALL = _numbers("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
# Signals about a process's own faults, children and timers. A worker drops the program's handlers of these, but must
# not ignore them: that would change its own behaviour.
_OWN = _numbers(
    "SIGCHLD",
    "SIGSEGV",
    "SIGBUS",
    "SIGFPE",
    "SIGILL",
    "SIGABRT",
    "SIGTRAP",
    "SIGSYS",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
)
_ALL = tuple(map(int, sorted(signal.valid_signals())))
# How long a signal that arrives in a finalizer is deferred: by then the finalizer has ended.
_SOON_SECONDS = 0.01


def program_signals() -> frozenset[int]:
    """The signals that workers ignore: those sent to all processes of a job, and those that the program handles."""
    return SENT_TO_ALL | (frozenset(_handled()) - _OWN)


def _handled() -> Iterator[int]:
    return (number for number in _ALL if callable(signal.getsignal(number)))


@contextmanager
def blocked_signals(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals in this thread, and in the processes that it starts, until the `with` block exits."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals(numbers: Iterable[int]) -> None:
    """In a worker: ignore these signals, which were blocked until now, and drop the program's handlers of others."""
    if threading.current_thread() is not threading.main_thread():
        return  # a worker that the program runs in a thread must not change its signals
    for number in frozenset(_handled()) & _OWN:
        signal.signal(number, signal.SIG_DFL)
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.set_wakeup_fd(-1)  # a forked child inherits that of the program's event loop
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals that Python handles until the block exits; then each is handled once.

    Any handler may raise: a program's own for SIGUSR1 as well as Python's for SIGINT. Only the main thread runs
    handlers, so others are never interrupted.
    """
    came: dict[int, None] = {}
    try:
        with _deferred(came):
            yield
    finally:
        with ExitStack() as all_of_them:  # also the later ones, if an earlier one raises
            for number in reversed(came):
                all_of_them.callback(signal.raise_signal, number)


@contextmanager
def deferred_signals_in_finalizer() -> Iterator[None]:
    """The same in a finalizer, where Python ignores what a handler raises: signals are handled a moment later."""
    came: dict[int, None] = {}
    try:
        with _deferred(came):
            yield
    finally:
        for number in came:
            again = threading.Timer(_SOON_SECONDS, signal.raise_signal, (number,))
            again.daemon = True
            with suppress(RuntimeError):  # Python is exiting and starts no more threads
                again.start()


@contextmanager
def _deferred(came: dict[int, None]) -> Iterator[None]:
    """Note signals in `came` instead of handling them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        came[number] = None

    try:
        for number in _handled():
            before[number] = signal.getsignal(number)
            signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
