"""Start workers through a context of multiprocessing: fork, spawn or forkserver, as the user chose.

They do not import the user's main module, unless their arguments need it, and from their first moment on they ignore
the signals that are meant for the program.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import process as processes
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from fastdata.processes import main_module
from fastdata.processes.child import Target, run_in_context
from fastdata.processes.worker import GRACE_SECONDS, WorkerProcess
from fastdata.sharedmem import SharedBlock
from fastdata.signals import blocked_signals, ignore_signals, program_signals

NAME = "fastdata-worker"
# One start at a time: a worker that is forked while the pipes of another are being made would inherit their ends, and
# keep them open when that worker dies.
starting = threading.RLock()
# A pipe takes 64 kB on Linux and 16 kB elsewhere before its other end reads. Larger arguments go through shared memory,
# so that starting a worker never waits for one that died while importing the main module.
_PIPE_BYTES = 8 << 10
# The most descriptors that a start has open at a time: pipes to the child, from it, for its errors and for helpers.
_START_DESCRIPTORS = 16
# The live workers. A fork of the program forgets them, because multiprocessing would end them when the fork ends.
_workers: set[BaseProcess] = set()


class NotPicklableError(TypeError):
    """A worker's target or arguments cannot be pickled."""


def start(
    context: BaseContext,
    target: Target,
    arguments: Sequence[Any],
    *,
    main: bool = False,
    others: Sequence[Connection] = (),
    captured: bool = False,
) -> WorkerProcess:
    """Start a worker that calls `target(connection, *arguments)`.

    Args:
        context: what `multiprocessing.get_context` gives.
        target: a function that a module defines.
        arguments: picklable, or shared by multiprocessing.
        main: whether the worker must import the main module.
        others: the parent's ends of other workers' connections, which a fork copies and must close.
        captured: what the worker writes to stdout and stderr goes to a file of its own.

    Raises:
        NotPicklableError: the target or an argument cannot be pickled.
        OSError: the system gives no process, memory or descriptors for it.
    """
    method = context.get_start_method()
    _check_room()
    with starting:
        ours, theirs = context.Pipe()
        inherited = [ours, *others] if method == "fork" else []
        carried = _Carried(target, theirs, arguments, inherited, captured)
        process = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(_IgnoredSignals(), carried), daemon=True, name=NAME
        )
        try:
            _start(process, method, main=main)
        except BaseException:
            ours.close()
            if process.pid is not None:
                process.kill()
                process.join()
            raise
        finally:
            carried.close()
            theirs.close()
        served = method == "forkserver"
        if served:
            _fork_server().use()
        return WorkerProcess(_Launched(process, ours, served=served))


class _Launched:
    """A process of multiprocessing."""

    def __init__(self, process: BaseProcess, connection: Connection, *, served: bool) -> None:
        assert process.pid is not None
        self._process, self._served, self._lost = process, served, False
        self.pid, self.connection, self.sentinel = process.pid, connection, process.sentinel

    def exit_code(self) -> int | None:
        if self._process.exitcode is None:
            self._process.join(GRACE_SECONDS)  # the fork server is about to report it
            if self._process.exitcode is None:
                # Another wait of the program took it, and its process id may belong to another process by now.
                self._process._popen.returncode = 0  # type: ignore[attr-defined]
                self._lost = True
        return None if self._lost else self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def log_tail(self) -> str:
        return ""

    def release(self) -> None:
        if self._process.exitcode is not None:
            self._process.close()
            _workers.discard(self._process)
        if self._served:
            _fork_server().leave()


def _start(process: BaseProcess, method: str, *, main: bool) -> None:
    with warnings.catch_warnings(), nullcontext() if main else main_module.left_out(NAME):
        # Python 3.12 warns of forks in threaded programs. The child calls nothing that another thread could have
        # locked: it reads files, decodes, and writes to a pipe. torch's own loader forks likewise.
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        signals = program_signals()
        if method != "fork" and os.name != "nt":
            _start_tracker(signals)
        try:
            with blocked_signals(signals), _server_of(method):
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise NotPicklableError(str(error)) from error
        _workers.add(process)
        # Programs, and Python when it ends, terminate children by a signal that these workers ignore.
        popen = process._popen  # type: ignore[attr-defined]
        popen.terminate = popen.kill


def may_have_children() -> bool:
    """Whether multiprocessing allows this process children; it does not if this is a worker of another loader."""
    return not multiprocessing.current_process().daemon


def _check_room() -> None:
    """Check that a start will not run out of descriptors half-way, because multiprocessing would leak some then."""
    spare: list[int] = []
    try:
        for _ in range(_START_DESCRIPTORS):
            spare.append(os.open(os.devnull, os.O_RDONLY))  # kept in a list, so that all are closed
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _forget_all() -> None:
    """In a fork of the program: forget the workers, so that multiprocessing does not end them with the fork."""
    global starting
    starting = threading.RLock()
    processes._children.difference_update(_workers)  # type: ignore[attr-defined]
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _server_of(method: str) -> AbstractContextManager[None]:
    return _fork_server().served() if method == "forkserver" else nullcontext()


def _fork_server() -> Any:
    from fastdata.processes import fork_server  # importable only on systems that fork

    return fork_server


def _start_tracker(signals: Iterable[int]) -> None:
    """Start multiprocessing's resource tracker with signals blocked, because by itself it ignores only some of them."""
    with blocked_signals(signals):
        resource_tracker.ensure_running()


class _IgnoredSignals:
    """Unpickled before the other arguments, because importing those takes a while, and signals may come then."""

    def __init__(self) -> None:
        self.numbers = program_signals()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _ignoring, (self.numbers,)


def _ignoring(numbers: frozenset[int]) -> _IgnoredSignals:
    ignore_signals(numbers)
    return _IgnoredSignals()


class _Carried:
    """A worker's target and arguments: inherited in a fork, else pickled; in shared memory if too large for a pipe."""

    def __init__(
        self, target: Target, connection: Connection, arguments: Sequence[Any], inherited: Sequence[Connection],
        captured: bool,
    ) -> None:  # fmt: skip
        self.target, self.connection, self.arguments = target, connection, arguments
        self.inherited, self.captured = inherited, captured
        self._block: SharedBlock | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        blob = bytes(ForkingPickler.dumps((self.target, self.connection, self.arguments, (), self.captured)))
        if len(blob) <= _PIPE_BYTES:
            return _unpacked, (blob,)
        self._block = SharedBlock(len(blob))
        self._block.buffer[:] = blob
        return _unpacked, (self._block,)

    def close(self) -> None:
        """Release the shared memory: the worker has started and holds it itself."""
        if self._block is not None:
            self._block.close()


def _unpacked(packed: bytes | SharedBlock) -> _Carried:
    if isinstance(packed, bytes):
        return _Carried(*pickle.loads(packed))
    with packed, packed.buffer as view:
        return _Carried(*pickle.loads(view))


def _run(ignored: _IgnoredSignals, carried: _Carried) -> None:
    ignore_signals(ignored.numbers)
    for connection in carried.inherited:
        connection.close()
    run_in_context(carried.target, carried.connection, carried.arguments, captured=carried.captured)
