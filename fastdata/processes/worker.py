"""WorkerProcess: a worker process as its parent sees it, however it was started.

Whether it has ended is the kernel's word, also where the program's own `os.wait()` took its exit code, or where whoever
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

# How long a process that has ended, or is being killed, may take until its parent knows how.
GRACE_SECONDS = 1.0


class Launched(Protocol):
    """What a way of starting processes leaves: everything in which these ways differ.

    Attributes:
        pid: the process id.
        connection: the parent's end.
        sentinel: is ready to be read when the process has ended; a fork of the program may keep it from that.
    """

    @property
    def pid(self) -> int: ...

    @property
    def connection(self) -> Connection: ...

    @property
    def sentinel(self) -> int: ...

    def exit_code(self) -> int | None:
        """The exit code of the process, which has ended; None if another wait of the program took it."""

    def kill(self) -> None:
        """Kill it by its process id."""

    def log_tail(self) -> str:
        """The end of what it wrote, where that was captured."""

    def release(self) -> None:
        """Give back what the parent holds, of a process that has ended or that nobody wants to know of any more."""


class WorkerProcess:
    """A worker process, started, and the parent's end of its connection.

    One that is only dropped ends by itself when its connection does.

    Attributes:
        connection: the parent's end.
        pid: the process id.
        end: what `multiprocessing.connection.wait` waits for until the process has ended.
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
        """The exit code of the process, which has ended: negative for a signal; None if another has taken it."""
        return self._launched.exit_code() if self._release.alive else None

    def log_tail(self) -> str:
        """The end of what it wrote to stdout and stderr; "" where that was not captured."""
        return self._launched.log_tail() if self._release.alive else ""

    def kill(self) -> None:
        """End it at once: it holds nothing that could be lost."""
        if self.ended(0):
            return
        if self._pidfd is None:
            self._launched.kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self, deadline: float) -> None:
        """Wait for its end, which was asked for, until `deadline`; then kill it, and give everything back."""
        self.connection.close()  # if it is sending, it ends, too
        if not self.ended(deadline - time.monotonic()):
            self.kill()
            self.ended(GRACE_SECONDS)
        self.exit_code()
        self._release()


def _pidfd(pid: int) -> int | None:
    """A descriptor of the process: other than a pipe to it, no fork of the program keeps it from telling."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:  # an old kernel, a sandbox; or it has ended, and the program has waited for it
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return None


def _released(pidfd: int | None, launched: Launched) -> None:
    if pidfd is not None:
        os.close(pidfd)
    launched.release()
