"""Every error that fastdata raises on purpose.

FastdataError
├── OptionError              (ValueError)         an argument or option that cannot be used
├── RecordError              (ValueError)         a key or field that no format can hold
├── FormatError              (ValueError)         a data set that cannot be read: unfinished, changed, damaged, foreign
├── DecodeError              (ValueError)         bytes that give no picture
│   ├── CutError                                  the picture's data end before the picture does
│   ├── TooLargeError                             more pixels than allowed
│   └── UnsupportedError                          a known kind of image that is not read here
├── ConvertError             (RuntimeError)       nothing could be written
│   └── OutputExistsError    (FileExistsError)    the destination is there already
├── CacheError               (MemoryError)        a cache that would not fit
└── LoadError                (RuntimeError)       a batch that could not be made
    └── WorkerError                               a worker of a loader died, or took too long

Each leaf is also the builtin that one would expect, so `except ValueError` works as usual.
"""

from __future__ import annotations


class FastdataError(Exception):
    """The root of the tree: catches whatever fastdata raises on purpose."""


class OptionError(FastdataError, ValueError):
    """An argument or option that cannot be used; the message names it, what came and what would do."""


class RecordError(FastdataError, ValueError):
    """A key or field that no format can hold."""


class FormatError(FastdataError, ValueError):
    """A data set that cannot be read: unfinished, changed since it was written, damaged, or not ours."""


class DecodeError(FastdataError, ValueError):
    """Bytes that give no picture."""


class CutError(DecodeError):
    """The picture's data end before the picture does."""


class TooLargeError(DecodeError):
    """The picture has more pixels than allowed."""


class UnsupportedError(DecodeError):
    """A known kind of image that is not read here (HEIC, JPEG XL, ...)."""


class ConvertError(FastdataError, RuntimeError):
    """Nothing could be written."""


class OutputExistsError(ConvertError, FileExistsError):
    """The destination is there already."""


class CacheError(FastdataError, MemoryError):
    """A cache that would not fit into what is free."""


class LoadError(FastdataError, RuntimeError):
    """A batch that could not be made; the message names the record and carries the worker's stack."""


class WorkerError(LoadError):
    """A worker of a loader died, or took longer than `timeout`."""
