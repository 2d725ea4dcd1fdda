"""What a worker process writes to stdout and stderr: an anonymous file that it and its parent hold.

The worker reads what came since it last looked, and tells it with the item that caused it; of a worker that died, its
parent reads the end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys

# What was written since the last look is read up to here.
_MOST_BYTES = 20_000
# How much a parent reads of what a dead worker wrote: its stack, or why it could not start.
_TAIL_BYTES = 4000


def lead_to(log: int) -> None:
    """In the worker: have stdout and stderr lead to this file."""
    for descriptor in (1, 2):
        os.dup2(log, descriptor)


def note_crashes() -> None:
    """In the worker: a crash leaves its stack on stderr."""
    with contextlib.suppress(ValueError, OSError):
        faulthandler.enable(2)


def taken() -> str:
    """In the worker: what was written since the last call."""
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
    """In the parent: the end of what the worker wrote."""
    os.lseek(log, max(0, os.fstat(log).st_size - _TAIL_BYTES), os.SEEK_SET)
    return os.read(log, _TAIL_BYTES).decode("utf-8", "replace").strip()
