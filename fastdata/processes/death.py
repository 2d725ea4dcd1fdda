"""Describe how a worker process died: its exit code, the likely cause, and what to do about it."""

from __future__ import annotations

import signal
from contextlib import suppress


def _codes(*names: str) -> frozenset[int]:
    return frozenset(-getattr(signal, name) for name in names if hasattr(signal, name))


# Exit codes, their likely cause, and whether it helps to use less memory.
_CAUSES = (
    (_codes("SIGKILL", "SIGBUS"), "often memory ran out", True),
    (_codes("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE"), "native code crashed, of a transform or a decoder", False),
)


def described(code: int | None) -> str:
    """An exit code as the end of a sentence; None if it is not known.

    >>> described(3), described(-9)
    ('ended with exit code 3', 'was ended by signal 9 (SIGKILL)')
    """
    if code is None:
        return "has ended; its exit code was taken by another wait of this program"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"was ended by signal {-code}"


def advice(code: int | None, less: str) -> str:
    """The likely cause of an exit code, and what helps; "" if the code suggests none.

    Args:
        code: the exit code.
        less: what to use less of, so that less memory is needed.

    >>> advice(-9, "fewer workers"), advice(1, "fewer workers")
    ('often memory ran out: use fewer workers', '')
    """
    for codes, cause, of_memory in _CAUSES:
        if code in codes:
            return f"{cause}: use {less}" if of_memory else cause
    return ""
