"""Processes that start without the user's main module.

Under spawn and forkserver, multiprocessing imports the main module in each child: a training script imports torch at
its top, which is a second and 150 MB for every worker that only decodes. So while a worker is started, `__main__` is
an empty module, unless what it was given (a transform) comes from the main module.
"""

from __future__ import annotations

import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from fastdata.errors import OptionError

# Two loaders that start workers in two threads would put each other's main module back.
_swapping = threading.Lock()


def needs_main(value: Any) -> bool:
    """Whether unpickling this value needs the main module.

    Raises:
        OptionError: it cannot be pickled.
    """
    try:
        return b"__main__" in pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise OptionError(
            f"a transform cannot be sent to a worker process ({error}); use a function or class that a module defines "
            "(no lambda, nothing local), or multiprocessing_context='fork'"
        ) from error


def start(process: BaseProcess, *, main: bool) -> None:
    """Start a process of multiprocessing, with the user's main module or without."""
    with warnings.catch_warnings():
        # Python 3.12 warns of forks in threaded programs. The child calls nothing that another thread could have
        # locked: it reads maps, decodes, and writes to a pipe. torch's own loader forks likewise.
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        if main:
            process.start()
            return
        with _no_main():
            process.start()


@contextmanager
def _no_main() -> Iterator[None]:
    with _swapping:
        user = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = user
