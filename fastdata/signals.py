"""Signals are for the program: it decides what they do, and its workers end with it and not before.

A terminal sends Ctrl-C, and a scheduler its warning before the end, to every process of a job. So workers ignore such
signals from their first moment on: they are blocked while a worker is being started, which it inherits, until it
ignores them. And steps that a handler which raises must not tear apart are done within `deferred_signals`.
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


# What a terminal or a scheduler sends to every process of a job.
SENT_TO_ALL = _numbers("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
# What tells a process of its own faults, children and clocks. A handler of the program is not a worker's, but to ignore
# these would change what the worker itself does.
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
# How long a signal that came in a finalizer is deferred: by then the finalizer is over.
_SOON_SECONDS = 0.01


def program_signals() -> frozenset[int]:
    """The signals that workers ignore: those sent to all processes of a job, and whatever the program handles."""
    return SENT_TO_ALL | (frozenset(_handled()) - _OWN)


def _handled() -> Iterator[int]:
    return (number for number in _ALL if callable(signal.getsignal(number)))


@contextmanager
def blocked_signals(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals in this thread, and in the processes that it starts, until the block is left."""
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
        return  # a worker that the program runs in a thread of its own: nothing here is its to change
    for number in frozenset(_handled()) & _OWN:
        signal.signal(number, signal.SIG_DFL)
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.set_wakeup_fd(-1)  # a fork's is the program's event loop
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
        with ExitStack() as all_of_them:  # also the later ones, where an earlier one raises
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
            with suppress(RuntimeError):  # Python ends, and starts no more threads
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
