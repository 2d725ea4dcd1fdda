"""Reasons for what the system refuses: the name and value of the limit of this process that is the cause."""

from __future__ import annotations

import errno
import os
import sys

# By error number: the limit that may be the cause, the shell's command for it, and what it counts.
_LIMITS = {
    errno.EFBIG: ("RLIMIT_FSIZE", "ulimit -f", "bytes in a file, shared memory included"),
    errno.ENOMEM: ("RLIMIT_AS", "ulimit -v", "bytes of address space"),
    errno.EMFILE: ("RLIMIT_NOFILE", "ulimit -n", "open files"),
    errno.EAGAIN: ("RLIMIT_NPROC", "ulimit -u", "processes and threads of this user"),
}


def refused(error: OSError | MemoryError) -> str | None:
    """Why the system refused something; None for an error that no limit or shortage explains."""
    number = error.errno if isinstance(error, OSError) and error.errno is not None else None
    if number is None:
        number = errno.ENOMEM if isinstance(error, MemoryError) else 0
    if number not in _LIMITS:
        return os.strerror(number) if number in (errno.ENFILE, errno.ENOSPC, errno.EPERM) else None
    name, shell, what = _LIMITS[number]
    most = _number(name)
    return os.strerror(number) if most is None else f"{name} (`{shell}`) allows {most:,} {what}"


def _number(name: str) -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft
