"""Processes that start without the user's main module, and deaf to the signals that are meant for the program.

Under spawn and forkserver, multiprocessing imports the main module in each child: a training script imports torch at
its top, which is a second and 150 MB for every worker that only decodes. So workers are prepared without it, unless
what they are given (a transform) comes from it.

A terminal sends Ctrl-C to the workers, too, and a scheduler its signals: they are the parent's to answer. From its
first moment on, a worker does not hear them.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import pickletools
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import process as processes
from multiprocessing import resource_tracker, spawn
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from fastdata.errors import OptionError
from fastdata.sharedmem import SharedBlock
from fastdata.signals import blocked, for_the_program, pass_by

NAME = "fastdata-worker"
# One start at a time: a worker that is forked while another one's pipes are being made would inherit their ends, and
# keep them open when that one dies.
_starting = threading.RLock()
# What a pipe takes of a process that nobody reads from yet: 64 kB on Linux, 16 kB elsewhere. More than this goes
# through shared memory, so that starting a worker never waits for one that died of its main module.
_PIPE_BYTES = 8 << 10
# Our workers that live. A fork of the program forgets them: multiprocessing would end them when it ends.
_ours: set[BaseProcess] = set()


def needs_main(value: Any) -> bool:
    """Whether unpickling this value needs the main module; told to be so where it cannot be told beforehand."""
    needed = _names_main(value)
    return True if needed is None else needed


def _names_main(value: Any) -> bool | None:
    try:
        blob = pickle.dumps(value)
    except Exception:  # locks and shared memory pickle while a process is being started, and only then
        return None
    return b"__main__" in blob and any(given == "__main__" for _, given, _ in pickletools.genops(blob))


def check_main(value: Any, method: str) -> bool:
    """Whether workers must import the main module to be given this value.

    Raises:
        OptionError: they must, and cannot.
    """
    if method == "fork":
        return False
    needed = _names_main(value)
    if _can_import_main():
        return needed is not False
    if needed:
        others = "multiprocessing_context='fork' or " if hasattr(os, "fork") else ""
        raise OptionError(
            "a transform is defined in a main module that worker processes cannot import (python -c, standard input, "
            "a notebook, a package's __main__): put it into a module of its own, which is imported here, or use "
            f"{others}worker_mode='thread'"
        )
    return False


def _can_import_main() -> bool:
    """Whether multiprocessing makes the main module known to what it spawns."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).rpartition(".")[2] != "__main__"
    path = getattr(main, "__file__", None)
    home = processes.ORIGINAL_DIR or ""  # type: ignore[attr-defined]
    return path is not None and os.path.isfile(os.path.join(home, path))


def one_at_a_time() -> AbstractContextManager[Any]:
    """For what is to be one step with `start`, such as making the pipe that the process is given."""
    return _starting


def start(process: BaseProcess, method: str, *, main: bool) -> None:
    """Start a process of multiprocessing, with the user's main module or without.

    Raises:
        OptionError: what it is given cannot be pickled, or this process may have no children.
    """
    if multiprocessing.current_process().daemon:
        raise OptionError(
            "this process is a daemon (a worker of another loader), which may start no processes: use num_workers=0 "
            "or worker_mode='thread' here"
        )
    with warnings.catch_warnings(), _starting, nullcontext() if main else _without_main():
        # Python 3.12 warns of forks in threaded programs. The child calls nothing that another thread could have
        # locked: it reads files, decodes, and writes to a pipe. torch's own loader forks likewise.
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        signals = for_the_program()
        if method != "fork" and os.name != "nt":
            _start_tracker(signals)
        try:
            with blocked(signals), _server_of(method):
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise OptionError(
                f"a transform cannot be sent to a worker process ({error}); use a function or class that a module "
                "defines (no lambda, nothing local), or multiprocessing_context='fork'"
            ) from error
        _ours.add(process)
        # A program may end all its children so, and Python does when it ends: by a signal that our workers pass by.
        popen = process._popen  # type: ignore[attr-defined]
        popen.terminate = popen.kill


def forget(process: BaseProcess) -> None:
    """A process is gone."""
    _ours.discard(process)


def _forget_all() -> None:
    """In a fork of the program: the workers are its parent's, and multiprocessing is not to end them with it."""
    global _starting
    _starting = threading.RLock()
    processes._children.difference_update(_ours)  # type: ignore[attr-defined]
    _ours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _server_of(method: str) -> AbstractContextManager[None]:
    if method != "forkserver":
        return nullcontext()
    from fastdata.loader.server import served

    return served()


def _start_tracker(signals: Iterable[int]) -> None:
    """Start multiprocessing's helper, which lives on, for others too: of itself it is deaf to some of the signals."""
    with blocked(signals):
        resource_tracker.ensure_running()


@contextmanager
def _without_main() -> Iterator[None]:
    """Leave the main module out of what workers are prepared with.

    Not by another `__main__` in `sys.modules`: other threads look there, whenever they pickle what the script defines.
    """
    original = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if name == NAME:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = original


class Deaf:
    """Unpickled before all else that a worker is given: importing that takes a while, and signals may come then."""

    def __init__(self) -> None:
        self.signals = for_the_program()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _deafened, (self.signals,)


def _deafened(signals: frozenset[int]) -> Deaf:
    pass_by(signals)
    return Deaf()


class Carried:
    """The arguments of a worker: as they are in a fork, pickled else; what no pipe would take, in shared memory."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self._block: SharedBlock | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        blob = bytes(ForkingPickler.dumps(self.arguments))
        if len(blob) <= _PIPE_BYTES:
            return _unpacked, (blob,)
        self._block = SharedBlock(len(blob))
        self._block.buffer[:] = blob
        return _unpacked, (self._block,)

    def close(self) -> None:
        """The worker is started, and holds the memory itself."""
        if self._block is not None:
            self._block.close()


def _unpacked(packed: bytes | SharedBlock) -> Carried:
    if isinstance(packed, bytes):
        return Carried(*pickle.loads(packed))
    with packed, packed.buffer as view:
        return Carried(*pickle.loads(view))


def run(deaf: Deaf, carried: Carried) -> None:
    """What a worker process is started with: the worker's own module is loaded only here, behind all that is above."""
    pass_by(deaf.signals)
    from fastdata.loader import worker

    worker.run(*carried.arguments)
