"""WorkerProcess: one fresh Python process at the other end of a connection.

It is `python -c` with one inherited descriptor (public API only), in a session of its own, so that Ctrl-C on the
terminal reaches the parent alone. Its stdout and stderr go to an anonymous file that both ends hold. Where descriptors
cannot be inherited so (Windows), multiprocessing's spawn does the same with a little more weight.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from fastdata.codec.chatter import anonymous_file
from fastdata.converters.worker import run_spawned
from fastdata.signals import SENT_TO_ALL, blocked

# One thread in every library that would start a pool of its own: the processes are the parallelism.
_SINGLE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# How long an ended process may take to be gone before it is killed. Its work is done by then.
_GRACE_SECONDS = 5.0
# The end of what a dead worker wrote: its stack, or its last words.
_TAIL = 4000
# Lists of file names wait in the socket while a worker is busy: some systems give it only 8 kB by default.
_SOCKET_BYTES = 256 << 10
# sys.path is set before anything is imported: the same packages as the parent's, and no file of the working directory
# in the place of a library.
_CODE = "import sys; sys.path[:] = sys.argv[2:]; from fastdata.converters.worker import run; run(int(sys.argv[1]))"


class WorkerProcess:
    """A process that runs `fastdata.converters.worker`.

    Attributes:
        connection: the parent's end.
    """

    def __init__(self, descriptors: Sequence[int] = ()) -> None:
        self._log = anonymous_file()
        try:
            self.connection, self._process = _start_spawned() if os.name == "nt" else _start(self._log, descriptors)
        except BaseException:
            os.close(self._log)
            raise

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def kill(self) -> None:
        """End it at once; `join` follows."""
        self._process.kill()

    def join(self) -> None:
        """Wait until it is gone and give everything back."""
        try:
            _wait(self._process)
        finally:
            self.connection.close()
            with contextlib.suppress(OSError):
                os.close(self._log)

    def autopsy(self) -> tuple[str, str]:
        """How it died, and its last words on lines of their own ("" if it left none)."""
        code = _wait(self._process)
        how = _describe(code)
        os.lseek(self._log, max(0, os.fstat(self._log).st_size - _TAIL), os.SEEK_SET)
        words = os.read(self._log, _TAIL).decode("utf-8", "replace").strip()
        return how, f"\nIts last words:\n{words}" if words else ""


def _start(log: int, descriptors: Sequence[int]) -> tuple[Any, Any]:
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        with blocked(SENT_TO_ALL):  # until the worker passes them by
            process = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(theirs.fileno()), *_search_path()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno(), *descriptors],
                start_new_session=True,
                env={**os.environ, **{name: "1" for name in _SINGLE if name not in os.environ}},
            )  # fmt: skip
        return Connection(ours.detach()), process


def _start_spawned() -> tuple[Any, Any]:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_spawned, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _search_path() -> list[str]:
    """The parent's `sys.path` as absolute folders, with the one that holds this package."""
    import fastdata

    home = os.path.dirname(os.path.dirname(os.path.abspath(fastdata.__file__)))
    paths = [os.path.abspath(entry) for entry in sys.path]
    return paths if home in paths else [*paths, home]


def _wait(process: Any) -> int:
    """The exit code, after killing a process that ought to be gone by now."""
    if isinstance(process, subprocess.Popen):
        try:
            return process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
    process.join(_GRACE_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    code: int = process.exitcode
    return code


def _describe(code: int) -> str:
    """An exit code in words.

    >>> _describe(3), _describe(-11)
    ('ended with exit code 3', 'was ended by signal SIGSEGV')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    hint = " (often: the machine ran out of memory; try fewer --workers)" if name == "SIGKILL" else ""
    return f"was ended by signal {name}{hint}"
