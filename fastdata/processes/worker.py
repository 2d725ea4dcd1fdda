"""WorkerProcess: a worker process as its parent sees it, however it was started.

The kernel reports whether it has ended, also if the program's own `os.wait()` took its exit code or the process that
forked it is gone.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Protocol

# How long the exit code of a process that has ended or is being killed may take to reach its parent.
GRACE_SECONDS = 1.0


class Launched(Protocol):
    """A started process: everything that depends on how it was started.

    Attributes:
        pid: the process id.
        connection: the parent's end.
        sentinel: ready to be read when the process has ended, unless a fork of the program holds its other end.
    """

    @property
    def pid(self) -> int: ...

    @property
    def connection(self) -> Connection: ...

    @property
    def sentinel(self) -> int: ...

    def exit_code(self) -> int | None:
        """The exit code of the process, which must have ended; None if another wait of the program took it."""

    def kill(self) -> None:
        """Kill it by its process id."""

    def log_tail(self) -> str:
        """The end of what it wrote, if that was captured."""

    def release(self) -> None:
        """Release the parent's resources of a process that has ended or is no longer needed."""


class WorkerProcess:
    """A started worker process and the parent's end of its connection.

    If it is dropped without `close`, the process ends by itself when its connection does.

    Attributes:
        connection: the parent's end.
        pid: the process id.
        end: an object for `multiprocessing.connection.wait`, ready when the process has ended.
    """

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self.connection, self.pid = launched.connection, launched.pid
        try:
            self._pidfd = _pidfd(self.pid)
        except BaseException:
            launched.kill()
            wait([launched.sentinel], GRACE_SECONDS)
            self.connection.close()
            launched.exit_code()
            launched.release()
            raise
        self.end = launched.sentinel if self._pidfd is None else self._pidfd
        self._release = weakref.finalize(self, _released, self._pidfd, launched)
        self._release.atexit = False

    def ended(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        return not self._release.alive or bool(wait([self.end], max(0.0, seconds)))

    def exit_code(self) -> int | None:
        """The exit code of the process, which must have ended: negative for a signal; None if it is lost."""
        return self._launched.exit_code() if self._release.alive else None

    def log_tail(self) -> str:
        """The end of what it wrote to stdout and stderr; "" if that was not captured."""
        return self._launched.log_tail() if self._release.alive else ""

    def kill(self) -> None:
        """Kill the process, which holds nothing that could be lost."""
        if self.ended(0):
            return
        if self._pidfd is None:
            self._launched.kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self, deadline: float) -> None:
        """Wait until `deadline` for the process to end, as it was asked to; then kill it, and release everything."""
        self.connection.close()  # this also ends a process that is sending
        if not self.ended(deadline - time.monotonic()):
            self.kill()
            self.ended(GRACE_SECONDS)
        self.exit_code()
        self._release()


def _pidfd(pid: int) -> int | None:
    """A descriptor of the process; unlike a pipe, it reports the end whatever a fork of the program holds."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:  # an old kernel, a sandbox; or another wait of the program took the process
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return None


def _released(pidfd: int | None, launched: Launched) -> None:
    if pidfd is not None:
        os.close(pidfd)
    launched.release()
