"""Every error that fastdata raises on purpose.

FastdataError
├── OptionError              (ValueError)         an argument or option that cannot be used
├── RecordError              (ValueError)         a key or field that no format can hold
├── FormatError              (ValueError)         a data set that cannot be read: unfinished, changed, damaged, foreign
├── DecodeError              (ValueError)         bytes that give no image
│   ├── CutError                                  the image's data end before the image does
│   ├── TooLargeError                             more pixels than allowed
│   └── UnsupportedError                          a known kind of image that is not read here
├── ConvertError             (RuntimeError)       nothing could be written
│   └── OutputExistsError    (FileExistsError)    the destination is there already
├── CacheError               (MemoryError)        a cache that would not fit
├── ResourceError            (OSError)            the machine failed or ran out of something; the data may be whole
│   └── OutOfMemoryError     (MemoryError)        of memory
└── LoadError                (RuntimeError)       a batch that could not be made
    └── WorkerError                               a worker of a loader died, or took too long

Each leaf is also the builtin that one would expect, so `except ValueError` works as usual.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

# What system calls say when the machine, the disk or the network fails, and not the file: the same call may succeed
# later, or on another machine. EIO is among them, since nothing is known then of the bytes that should have come.
_OF_THE_MACHINE = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN", "EBUSY", "ECONNABORTED", "ECONNRESET", "EDQUOT", "EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EIO",
        "EMFILE", "ENETDOWN", "ENETUNREACH", "ENFILE", "ENOBUFS", "ENODEV", "ENOLCK", "ENOMEM", "ENOSPC", "ENOTCONN",
        "EREMOTEIO", "ESHUTDOWN", "ESTALE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip
# Libraries tell of it by their words alone: torch's allocator, libjpeg, OpenCV; lmdb, HDF5, the import of a module.
_OF_MEMORY = ("can't allocate memory", "Insufficient memory", os.strerror(errno.ENOMEM))
_OF_FILES = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
# Errors that were raised from one another, as far as they are followed; chains may be circles.
_LONGEST_CHAIN = 8
_OF_THREADS = "can't start new thread"


class FastdataError(Exception):
    """The root of the tree: catches whatever fastdata raises on purpose."""


class OptionError(FastdataError, ValueError):
    """An argument or option that cannot be used; the message names it, what came and what would do."""


class RecordError(FastdataError, ValueError):
    """A key or field that no format can hold."""


class FormatError(FastdataError, ValueError):
    """A data set that cannot be read: unfinished, changed since it was written, damaged, or not ours."""


class DecodeError(FastdataError, ValueError):
    """Bytes that give no image."""


class CutError(DecodeError):
    """The image's data end before the image does."""


class TooLargeError(DecodeError):
    """The image has more pixels than allowed."""


class UnsupportedError(DecodeError):
    """A known kind of image that is not read here (HEIC, JPEG XL, ...)."""


class ConvertError(FastdataError, RuntimeError):
    """Nothing could be written.

    Attributes:
        message: what happened, in one line.
        log: lines that follow it, where a worker process left some; else "".
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.message, self.log = message, log

    def __str__(self) -> str:
        return f"{self.message}\n{self.log}" if self.log else self.message


class OutputExistsError(ConvertError, FileExistsError):
    """The destination is there already."""


class CacheError(FastdataError, MemoryError):
    """A cache that would not fit into what is free."""


class ResourceError(FastdataError, OSError):
    """The machine failed, or ran out of something (descriptors, disk, threads): it says nothing of the data."""


class OutOfMemoryError(ResourceError, MemoryError):
    """The machine ran out of memory: it says nothing of the data."""


class LoadError(FastdataError, RuntimeError):
    """A batch that could not be made; the message names the record and carries the worker's stack."""


class WorkerError(LoadError):
    """A worker of a loader died, or took longer than `timeout`."""


def resource_error(error: BaseException) -> type[ResourceError] | None:
    """What to call an error that tells of the machine, whoever raised it; None for one that may tell of the data.

    Such an error must end a run: a sample that could not be read for want of descriptors or memory is not damaged.
    """
    origin = _of_the_machine(error)
    if origin is None:
        return None
    if isinstance(origin, ResourceError):
        return type(origin)
    return OutOfMemoryError if _of_memory(origin) else ResourceError


class Cures(NamedTuple):
    """What to do where a machine runs out of something.

    Attributes:
        memory: what needs less memory.
        files: what needs fewer open files.
    """

    memory: str = "fewer workers or smaller batches need less"
    files: str = "raise the limit (`ulimit -n`), or open fewer data sets at a time"


_CURES = Cures()


def resource_words(error: BaseException, cures: Cures = _CURES) -> str:
    """The reason that an error of the machine gives, and what to do about it."""
    origin = _of_the_machine(error)
    if origin is None or isinstance(origin, ResourceError):  # in these words already
        return str(origin or error)
    if _of_memory(origin):
        return f"out of memory, which says nothing of the data; {cures.memory}"
    words = (origin.strerror if isinstance(origin, OSError) else None) or str(origin)
    name = getattr(origin, "filename", None)
    if any(each in words for each in _OF_FILES):
        cure = cures.files
    elif words == _OF_THREADS:
        cure = "use fewer workers, or raise the limit of processes (`ulimit -u`)"
    else:
        cure = "see to the disk or the network, then try again"
    return f"{words}{'' if name is None else f': {name!r}'}; this says nothing of the data: {cure}"


def as_resource_error(error: BaseException, where: str, cures: Cures = _CURES) -> ResourceError | None:
    """An error of the machine as one of ours, `where` it came in front; None where it is none."""
    kind = resource_error(error)
    if kind is None:
        return None
    words = resource_words(error, cures)
    if isinstance(error, ResourceError) and where in words:
        return error
    made = kind(f"{where}: {words.replace(f': {where!r};', ';', 1)}")
    made.errno = getattr(_of_the_machine(error), "errno", None)
    return made


def raise_resource_error(error: BaseException, where: str, cures: Cures = _CURES) -> None:
    """Raise an error of the machine as one of ours; pass over any other."""
    failed = as_resource_error(error, where, cures)
    if failed is not None:
        raise failed from (None if failed is error else error)


def _of_the_machine(error: BaseException | None) -> BaseException | None:
    """The error, or the one that it was raised from, that tells of the machine."""
    for _ in range(_LONGEST_CHAIN):
        if error is None or isinstance(error, ResourceError):
            return error
        if isinstance(error, OSError) and error.errno is not None:
            if error.errno in _OF_THE_MACHINE:
                return error
        elif not isinstance(error, FastdataError):
            words = str(error)
            if _of_memory(error) or words == _OF_THREADS or any(each in words for each in _OF_FILES):
                return error
        error = error.__cause__
    return None


def _of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's is a RuntimeError
        return True
    return any(each in str(error) for each in _OF_MEMORY)
