"""What every worker process does before its work: ignore signals, end with its parent, and use one thread.

A terminal sends Ctrl-C to the workers, too, and a scheduler its signals; only the parent handles them. They are blocked
while a worker starts, and the worker ignores them from its first moment on.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import select
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from fastdata.processes import output
from fastdata.sharedmem import anonymous_file
from fastdata.signals import SENT_TO_ALL, ignore_signals

# One thread in every library that would start several, because the processes are the parallelism. A loader's worker
# overrides the user's values, which are meant for the training process; a conversion's worker keeps them.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")

Target = Callable[..., None]
"""What a worker runs: a function of a module, which is called with the worker's end of the connection."""


def run_fresh() -> None:
    """Entry point of a new interpreter: `sys.argv` holds its end of the connection, its parent and its target."""
    ignore_signals(SENT_TO_ALL)
    descriptor, parent, target = sys.argv[1:4]
    connection = Connection(int(descriptor))
    output.note_crashes()
    watch = ParentWatch(int(parent), connection=connection)
    default_to_one_thread()
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(connection)
    watch.stop()


def run_in_context(target: Target, connection: Connection, arguments: Sequence[Any], *, captured: bool) -> None:
    """Run the target in a process of multiprocessing. `captured`: what it writes goes to a file."""
    if captured:
        output.redirect_to(anonymous_file())
        output.note_crashes()
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        ParentWatch(parent.pid, sentinel=parent.sentinel)
    one_thread_each()
    target(connection, *arguments)


def default_to_one_thread() -> None:
    """Use one thread in libraries for which the environment sets no number. None of them is loaded yet."""
    for name in _THREADS:
        os.environ.setdefault(name, "1")


def one_thread_each() -> None:
    """Use one thread in libraries, whether they are loaded now or later."""
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


class ParentWatch:
    """Ends this process when its parent ends, whatever it is doing then, such as a slow transform.

    Decoders release the interpreter lock, so the waiting thread can run.

    Args:
        parent: the parent's process id.
        sentinel: ready to be read when the parent has ended.
        connection: the process also ends when the other end of this connection is closed.
    """

    def __init__(self, parent: int, *, sentinel: int | None = None, connection: Connection | None = None) -> None:
        self._stopped = False
        self._parent, self._sentinel, self._connection = parent, sentinel, connection
        # Forks of the parent keep its pipes open, so only the kernel knows for certain that it has ended.
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(parent)
            except ProcessLookupError:
                os._exit(1)
            except OSError:  # an old kernel, or a sandbox that forbids it
                pass
        threading.Thread(target=self._watch, name="fastdata-parent", daemon=True).start()

    def stop(self) -> None:
        """Stop watching: the work is done, and the connection may be closed now."""
        self._stopped = True

    def _watch(self) -> None:
        if hasattr(select, "poll"):
            self._poll()
        elif self._sentinel is not None:  # Windows: a handle, which only multiprocessing waits for
            wait([self._sentinel])
        else:
            return
        if not self._stopped:
            os._exit(1)

    def _poll(self) -> None:
        poll = select.poll()
        for handle in (self._sentinel, self._pidfd):
            if handle is not None:
                poll.register(handle, select.POLLIN)
        if self._connection is not None:
            poll.register(self._connection.fileno(), 0)  # only the hang-up, which is always reported
        poll.poll()
