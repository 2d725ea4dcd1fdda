"""Capture what a worker process writes to stdout and stderr in an anonymous file that it shares with its parent.

The worker reads what was written since its last look, and returns it with the item that caused it; if a worker dies,
its parent reads the end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys

# The most that is read of what was written since the last look.
_MOST_BYTES = 20_000
# How much a parent reads of the log of a dead worker: its stack, or why it could not start.
_TAIL_BYTES = 4000


def redirect_to(log: int) -> None:
    """In the worker: redirect stdout and stderr to this file."""
    for descriptor in (1, 2):
        os.dup2(log, descriptor)


def note_crashes() -> None:
    """In the worker: write the stack to stderr on a crash."""
    with contextlib.suppress(ValueError, OSError):
        faulthandler.enable(2)


def taken() -> str:
    """In the worker: return what was written since the last call."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        size = os.lseek(2, 0, os.SEEK_END)
        if size == 0:
            return ""
        os.lseek(2, 0, os.SEEK_SET)
        text = os.read(2, _MOST_BYTES).decode("utf-8", "replace")
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)
        return text
    return ""


def tail(log: int) -> str:
    """In the parent: return the end of what the worker wrote."""
    os.lseek(log, max(0, os.fstat(log).st_size - _TAIL_BYTES), os.SEEK_SET)
    return os.read(log, _TAIL_BYTES).decode("utf-8", "replace").strip()
