"""Child: a worker process as its parent sees it. Whether it has ended is the kernel's word, also where the program's
own `os.wait()` took its exit code, or where whoever forked it is gone.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from fastdata.loader.start import NAME, Carried, Deaf, forget, one_at_a_time, run, start

# How long a process that has ended, or is being killed, may take until its parent knows how.
_GRACE_SECONDS = 1.0
# What a start opens at most at a time: pipes to the child, from it, for its errors and for helpers, and its descriptor.
_START_DESCRIPTORS = 16


class Child:
    """A worker process, started, and this end of its connection.

    Args:
        context: a context of multiprocessing.
        arguments: what the worker is given, beside its end of the connection.
        others: connections that a fork copies, and must close.
        main: whether it must import the main module.

    Attributes:
        connection: this end.
        end: what `multiprocessing.connection.wait` waits for until the process has ended.
    """

    def __init__(self, context: Any, *arguments: Any, others: list[Connection], main: bool) -> None:
        method = context.get_start_method()
        _check_room()
        with one_at_a_time():
            self.connection, theirs = context.Pipe()
            carried = Carried(theirs, *arguments, [self.connection, *others] if method == "fork" else [])
            self._process = context.Process(target=run, args=(Deaf(), carried), daemon=True, name=NAME)
            try:
                start(self._process, method, main=main)
                self.pid: int = self._process.pid
                self.end = self._end()
            except BaseException:
                self.connection.close()
                if self._process.pid is not None:
                    self._process.kill()
                    self._process.join()
                raise
            finally:
                carried.close()
                theirs.close()
        served = method == "forkserver"
        if served:
            _server().use()
        # Also for one that is only dropped: it ends by itself when its connection does.
        self._let_go = weakref.finalize(self, _let_go, None if self._by_sentinel else self.end, served)
        self._let_go.atexit = False

    def _end(self) -> Any:
        """A descriptor of the process: other than a pipe to it, no fork of the program keeps it from telling."""
        if hasattr(os, "pidfd_open"):
            try:
                return os.pidfd_open(self.pid)
            except OSError as error:  # an old kernel, a sandbox; or it has ended, and the program has waited for it
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    raise
        return self._process.sentinel

    @property
    def _by_sentinel(self) -> bool:
        return bool(self.end == self._process.sentinel)

    def ended(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        return not self._let_go.alive or bool(wait([self.end], max(0.0, seconds)))

    def code(self) -> int | None:
        """The exit code of the process, which has ended: negative for a signal; None if another has taken it."""
        if not self._let_go.alive:
            return None
        if self._process.exitcode is None:
            self._process.join(_GRACE_SECONDS)  # the fork server is about to tell
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        """End it at once: it holds nothing that could be lost."""
        if self.ended(0):
            return
        if self._by_sentinel:
            self._process.kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def close(self, deadline: float) -> None:
        """Wait for its end, which was asked for, until `deadline`; then kill it, and give everything back."""
        self.connection.close()  # if it is sending, it ends, too
        if not self.ended(deadline - time.monotonic()):
            self.kill()
            self.ended(_GRACE_SECONDS)
        if self._let_go.alive and self.code() is None:
            # Another `wait` of the program has taken its exit code, and its number may be another process's by now.
            self._process._popen.returncode = 0
        self._process.close()
        forget(self._process)
        self._let_go()


def _check_room() -> None:
    """See that a start will not run out of descriptors half-way: multiprocessing would leave some of them behind."""
    spare: list[int] = []
    try:
        for _ in range(_START_DESCRIPTORS):
            spare.append(os.open(os.devnull, os.O_RDONLY))  # what was opened is closed
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _let_go(end: int | None, served: bool) -> None:
    if end is not None:
        os.close(end)
    if served:
        _server().leave()


def _server() -> Any:
    from fastdata.loader import server  # of systems that fork

    return server
