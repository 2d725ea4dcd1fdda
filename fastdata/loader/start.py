"""Processes that start without the user's main module, and deaf to Ctrl-C.

Under spawn and forkserver, multiprocessing imports the main module in each child: a training script imports torch at
its top, which is a second and 150 MB for every worker that only decodes. So workers are prepared without it, unless
what they are given (a transform) comes from it.

A terminal sends Ctrl-C to the workers, too, and it is the parent's to answer: from its first moment on, a worker does
not hear it.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import resource_tracker, spawn
from multiprocessing.process import BaseProcess
from typing import Any

from fastdata.errors import OptionError

NAME = "fastdata-worker"
# The name by which multiprocessing asks for the data that its fork server is prepared with.
_FORK_SERVER = "ignore"
# One start at a time: a worker that is forked while another one's pipes are being made would inherit their ends, and
# keep them open when that one dies.
starting = threading.RLock()


def needs_main(value: Any) -> bool:
    """Whether unpickling this value needs the main module; told to be so where it cannot be told beforehand."""
    try:
        return b"__main__" in pickle.dumps(value)
    except Exception:  # locks and shared memory pickle while a process is being started, and only then
        return True


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
    with warnings.catch_warnings(), starting, nullcontext() if main else _without_main(), _deaf(method):
        # Python 3.12 warns of forks in threaded programs. The child calls nothing that another thread could have
        # locked: it reads files, decodes, and writes to a pipe. torch's own loader forks likewise.
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise OptionError(
                f"a transform cannot be sent to a worker process ({error}); use a function or class that a module "
                "defines (no lambda, nothing local), or multiprocessing_context='fork'"
            ) from error


@contextmanager
def _without_main() -> Iterator[None]:
    """Leave the main module out of what workers (and a fork server that is started for them) are prepared with.

    Not by another `__main__` in `sys.modules`: other threads look there, whenever they pickle what the script defines.
    """
    original = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if name in (NAME, _FORK_SERVER):
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = original


@contextmanager
def _deaf(method: str) -> Iterator[None]:
    """Block Ctrl-C while a child comes into being, which inherits that; it is delivered here afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Helpers that live on, for others too, are started before: they would be deaf for good.
    if method == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
    if method != "fork":
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """In a worker: Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Deaf:
    """Unpickled before anything else that a worker is given: importing that takes a while, and Ctrl-C may come then."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _deafened, ()


def _deafened() -> Deaf:
    ignore_interrupts()
    return Deaf()


def run(_deaf: Deaf, *arguments: Any) -> None:
    """What a worker process is started with: the worker's own module is loaded only here, behind all that is above."""
    from fastdata.loader import worker

    worker.run(*arguments)
