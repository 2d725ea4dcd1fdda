"""What every worker process does before its work: it ignores signals, ends with its parent, and uses one thread.

A terminal sends Ctrl-C to the workers, too, and a scheduler its signals: they are the parent's to answer. They are
blocked while a worker comes into being, and from its first moment on it ignores them.
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
    """Entry of a new interpreter: `sys.argv` holds its end of the connection, its parent and its target."""
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
    """What a process of multiprocessing does, once it ignores signals. `captured`: what it writes goes to a file."""
    if captured:
        output.lead_to(anonymous_file())
        output.note_crashes()
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        ParentWatch(parent.pid, sentinel=parent.sentinel)
    one_thread_each()
    target(connection, *arguments)


def default_to_one_thread() -> None:
    """One thread in libraries for which the environment sets no number. None is loaded yet."""
    for name in _THREADS:
        os.environ.setdefault(name, "1")


def one_thread_each() -> None:
    """One thread in libraries that are loaded later, and in those that are loaded."""
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


class ParentWatch:
    """Ends this process with its parent, whatever it is doing then, such as a slow transform.

    Decoders release the interpreter lock, so a thread that waits gets its turn.

    Args:
        parent: the parent's process id.
        sentinel: what is ready to be read when the parent is gone.
        connection: the process also ends when the other end of this one is closed.
    """

    def __init__(self, parent: int, *, sentinel: int | None = None, connection: Connection | None = None) -> None:
        self._stopped = False
        self._parent, self._sentinel, self._connection = parent, sentinel, connection
        # Forks of the parent keep open what it held: only the kernel tells for certain that it is gone.
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
        """The work is done: a connection that is closed now says nothing."""
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
