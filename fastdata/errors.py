"""Every error that fastdata raises on purpose.

FastdataError
├── OptionError              (ValueError)         an argument or option that cannot be used
├── RecordError              (ValueError)         a key or field that no format can hold
├── FormatError              (ValueError)         a data set that cannot be read: unfinished, changed, damaged, foreign
├── DecodeError              (ValueError)         bytes that give no image
│   ├── CutError                                  the data end before the image is complete
│   ├── TooLargeError                             more pixels than allowed
│   └── UnsupportedError                          a known kind of image that is not supported
├── ConvertError             (RuntimeError)       a conversion that failed
│   └── OutputExistsError    (FileExistsError)    the destination exists already
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

# Error numbers of a failing machine, disk or network, rather than of the file: the same call may succeed later, or on
# another machine. EIO is among them, since it says nothing about the bytes that should have been read.
_OF_THE_MACHINE = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN", "EBUSY", "ECONNABORTED", "ECONNRESET", "EDQUOT", "EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EIO",
        "EMFILE", "ENETDOWN", "ENETUNREACH", "ENFILE", "ENOBUFS", "ENODEV", "ENOLCK", "ENOMEM", "ENOSPC", "ENOTCONN",
        "EREMOTEIO", "ESHUTDOWN", "ESTALE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip
# Libraries that report it by their message alone: torch's allocator, libjpeg, OpenCV; lmdb, HDF5, imports of modules.
_OF_MEMORY = ("can't allocate memory", "Insufficient memory", os.strerror(errno.ENOMEM))
_OF_FILES = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
# How far a chain of causes is followed; it may be circular.
_LONGEST_CHAIN = 8
_OF_THREADS = "can't start new thread"


class FastdataError(Exception):
    """The base class of every error that fastdata raises on purpose."""


class OptionError(FastdataError, ValueError):
    """An argument or option that cannot be used; the message names it, the value given and what is allowed."""


class RecordError(FastdataError, ValueError):
    """A key or field that no format can hold."""


class FormatError(FastdataError, ValueError):
    """A data set that cannot be read: unfinished, changed since it was written, damaged, or not ours."""


class DecodeError(FastdataError, ValueError):
    """Bytes that give no image."""


class CutError(DecodeError):
    """The data end before the image is complete."""


class TooLargeError(DecodeError):
    """The image has more pixels than allowed."""


class UnsupportedError(DecodeError):
    """A known kind of image that is not supported (HEIC, JPEG XL, ...)."""


class ConvertError(FastdataError, RuntimeError):
    """A conversion that failed.

    Attributes:
        message: what happened, in one line.
        log: the tail of a worker process's log, if it left one; else "".
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.message, self.log = message, log

    def __str__(self) -> str:
        return f"{self.message}\n{self.log}" if self.log else self.message


class OutputExistsError(ConvertError, FileExistsError):
    """The destination exists already."""


class CacheError(FastdataError, MemoryError):
    """A cache that would not fit into the free memory."""


class ResourceError(FastdataError, OSError):
    """The machine failed, or ran out of something (descriptors, disk, threads); it says nothing about the data."""


class OutOfMemoryError(ResourceError, MemoryError):
    """The machine ran out of memory; it says nothing about the data."""


class LoadError(FastdataError, RuntimeError):
    """A batch that could not be made; the message names the record and carries the worker's stack."""


class WorkerError(LoadError):
    """A worker of a loader died, or took longer than `timeout`."""


def resource_error(error: BaseException) -> type[ResourceError] | None:
    """The class for an error that is due to the machine, whoever raised it; None if it may be due to the data.

    Such an error must end a run: a sample that could not be read for lack of descriptors or memory is not damaged.
    """
    origin = _of_the_machine(error)
    if origin is None:
        return None
    if isinstance(origin, ResourceError):
        return type(origin)
    return OutOfMemoryError if _of_memory(origin) else ResourceError


class Cures(NamedTuple):
    """Advice for when a machine runs out of something.

    Attributes:
        memory: what needs less memory.
        files: what needs fewer open files.
    """

    memory: str = "fewer workers or smaller batches need less"
    files: str = "raise the limit (`ulimit -n`), or open fewer data sets at a time"


_CURES = Cures()


def resource_words(error: BaseException, cures: Cures = _CURES) -> str:
    """The reason for an error of the machine, and what to do about it."""
    origin = _of_the_machine(error)
    if origin is None or isinstance(origin, ResourceError):  # it has such a message already
        return str(origin or error)
    if _of_memory(origin):
        return f"out of memory, which says nothing about the data; {cures.memory}"
    reason = (origin.strerror if isinstance(origin, OSError) else None) or str(origin)
    name = getattr(origin, "filename", None)
    if any(each in reason for each in _OF_FILES):
        cure = cures.files
    elif reason == _OF_THREADS:
        cure = "use fewer workers, or raise the limit of processes (`ulimit -u`)"
    else:
        cure = "check the disk or the network, then try again"
    return f"{reason}{'' if name is None else f': {name!r}'}; this says nothing about the data: {cure}"


def as_resource_error(error: BaseException, where: str, cures: Cures = _CURES) -> ResourceError | None:
    """An error of the machine as a ResourceError that begins with `where`; None for any other error."""
    kind = resource_error(error)
    if kind is None:
        return None
    message = resource_words(error, cures)
    if isinstance(error, ResourceError) and where in message:
        return error
    made = kind(f"{where}: {message.replace(f': {where!r};', ';', 1)}")
    made.errno = getattr(_of_the_machine(error), "errno", None)
    return made


def raise_resource_error(error: BaseException, where: str, cures: Cures = _CURES) -> None:
    """Raise an error of the machine as a ResourceError; return for any other error."""
    failed = as_resource_error(error, where, cures)
    if failed is not None:
        raise failed from (None if failed is error else error)


def _of_the_machine(error: BaseException | None) -> BaseException | None:
    """The error, or the one that it was raised from, that is due to the machine."""
    for _ in range(_LONGEST_CHAIN):
        if error is None or isinstance(error, ResourceError):
            return error
        if isinstance(error, OSError) and error.errno is not None:
            if error.errno in _OF_THE_MACHINE:
                return error
        elif not isinstance(error, FastdataError):
            message = str(error)
            if _of_memory(error) or message == _OF_THREADS or any(each in message for each in _OF_FILES):
                return error
        error = error.__cause__
    return None


def _of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's is a RuntimeError
        return True
    return any(each in str(error) for each in _OF_MEMORY)
