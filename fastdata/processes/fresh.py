"""Start workers as new interpreters, which share only `sys.path` with the program.

A worker is `python -c` with one inherited descriptor (public API only), in a session of its own, so that Ctrl-C on the
terminal reaches the parent alone. Its stdout and stderr go to an anonymous file from its first moment on, so that a
worker that cannot start reports why. Unlike multiprocessing's spawn it needs no helper process, and a daemon may start
it. Where descriptors cannot be inherited in this way (Windows), spawn is used; it does the same at a slightly higher
cost.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

from fastdata.processes import context, output
from fastdata.processes.child import Target
from fastdata.processes.worker import WorkerProcess
from fastdata.sharedmem import anonymous_file
from fastdata.signals import SENT_TO_ALL, blocked_signals

# Messages wait in the socket while a worker is busy: some systems give it only 8 kB by default.
_SOCKET_BYTES = 256 << 10
# sys.path is set before anything is imported: the worker has the parent's packages, and no file of the working
# directory hides a library.
_CODE = "import sys; sys.path[:] = sys.argv[4:]; from fastdata.processes.child import run_fresh; run_fresh()"


def start(target: Target, descriptors: Sequence[int] = ()) -> WorkerProcess:
    """Start a worker that calls `target(connection)`.

    Args:
        target: a function that a module defines.
        descriptors: those that it inherits, under the same numbers; none on Windows.

    Raises:
        OSError: the system gives no process or descriptors for it.
    """
    if os.name == "nt":
        return context.start(multiprocessing.get_context("spawn"), target, (), captured=True)
    with context.starting:
        return WorkerProcess(_launch(target, descriptors))


def _launch(target: Target, descriptors: Sequence[int]) -> _Launched:
    log = anonymous_file()
    try:
        sentinel, written = os.pipe()  # the worker's end is closed when it ends
        try:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                for end in (ours, theirs):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
                given = [str(theirs.fileno()), str(os.getpid()), f"{target.__module__}:{target.__qualname__}"]
                with blocked_signals(SENT_TO_ALL):  # until the worker ignores them
                    process = subprocess.Popen(
                        [sys.executable, "-c", _CODE, *given, *_search_path()],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                        pass_fds=[theirs.fileno(), written, *descriptors],
                    )  # fmt: skip
                return _Launched(process, Connection(ours.detach()), sentinel, log)
        except BaseException:
            os.close(sentinel)
            raise
        finally:
            os.close(written)
    except BaseException:
        os.close(log)
        raise


class _Launched:
    """An interpreter, and the descriptors of it that the parent holds."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection, sentinel: int, log: int) -> None:
        self._process, self._log, self._lost = process, log, False
        self.pid, self.connection, self.sentinel = process.pid, connection, sentinel

    def exit_code(self) -> int | None:
        if self._process.returncode is None:
            try:
                status = os.waitpid(self.pid, 0)[1]
            except ChildProcessError:  # another wait of the program took it
                self._process.returncode, self._lost = 0, True
            else:
                self._process.returncode = os.waitstatus_to_exitcode(status)
        return None if self._lost else self._process.returncode

    def kill(self) -> None:
        self._process.kill()

    def log_tail(self) -> str:
        return output.tail(self._log)

    def release(self) -> None:
        os.close(self.sentinel)
        os.close(self._log)


def _search_path() -> list[str]:
    """The parent's `sys.path` as absolute folders, including the one that holds this package."""
    import fastdata

    home = os.path.dirname(os.path.dirname(os.path.abspath(fastdata.__file__)))
    paths = [os.path.abspath(entry) for entry in sys.path]
    return paths if home in paths else [*paths, home]
