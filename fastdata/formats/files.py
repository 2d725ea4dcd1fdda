"""Files of a data set: checked for their kind, length and identity, then read by offset.

Data files are not mapped: touching a map of a file that was cut meanwhile crashes the process, while a read raises an
error; and a map counts against limits on address space. A file that replaced another would give wrong data, so it is
refused.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fastdata.errors import FormatError, raise_resource_error
from fastdata.formats.base import Closing
from fastdata.formats.descriptors import Handle, Handles, check_regular, handles, open_regular

if sys.platform != "win32":
    import resource


class Stamp(NamedTuple):
    """What distinguishes a file from a later one of the same name."""

    device: int
    inode: int
    length: int
    changed: int


# How many files stay open in a process, for all its readers together: opening one again costs 20 us, a tenth of the
# time for a sample. At most a quarter (1 / _SHARE) of the process's limit, since others need descriptors, too.
MOST_KEPT, _SHARE = 256, 4
# An ordinary image fits into the first buffer, so that it need not grow step by step; very large ones are not kept.
_FIRST_ROOM, _MOST_ROOM = 1 << 18, 1 << 24
# Data to be hashed are read in pieces of this size: hashing one takes some 100 us, far more than a system call.
_PIECE = 1 << 20


class Scratch(threading.local):
    """A buffer for each thread that blobs are read into, reused for every blob: fresh pages would cost time."""

    _memory = memoryview(b"")

    def room(self, size: int) -> memoryview:
        """Memory of this size; it overwrites what was read before."""
        if size > _MOST_ROOM:
            return memoryview(bytearray(size))
        if size > len(self._memory):
            self._memory = memoryview(bytearray(min(max(2 * size, _FIRST_ROOM), _MOST_ROOM)))
        return self._memory[:size]

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()


class Blobs(Protocol):
    """The bytes of a data set: `DataFiles`, or memory."""

    def __len__(self) -> int: ...
    def read(self, file: int, offset: int, size: int, scratch: Scratch | None = None, /) -> bytes | memoryview: ...
    def close(self) -> None: ...


class DataFiles:
    """The data files of a data set; each is opened when it is first read.

    Args:
        paths: the files, by number.
        lengths: the exact length that each must have.
        stamps: the stamp of each when the data set was opened; empty if not known.
    """

    def __init__(self, paths: Sequence[str], lengths: Sequence[int], stamps: Sequence[Stamp]) -> None:
        self._paths, self._lengths, self._stamps = paths, lengths, stamps
        self._handles = Handles()
        self._closed = False

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, file: int, offset: int, size: int, scratch: Scratch | None = None) -> bytes | memoryview:
        """Read bytes of a file: into `scratch`, valid until that is used again, or else into memory of their own.

        Raises:
            FormatError: the file is gone, was replaced, or ends too early: it was cut since it was opened.
            OSError: it cannot be read.
            ValueError: the reader is closed.
        """
        handle = self._handles.get(file)
        if handle is None:
            handle = self._opened(file)
        handle.used = True
        path = self._paths[file]
        data: bytes | memoryview | None = None
        if scratch is None:
            data = _fetch(handle.descriptor, size, offset, path)
        elif _fill(handle.descriptor, room := scratch.room(size), offset, path):
            data = room.toreadonly()
        if data is None:
            raise wrong_length(path, os.fstat(handle.descriptor).st_size, self._lengths[file])
        return data

    def close(self) -> None:
        """Close all files; bytes that were read stay valid."""
        self._closed = True
        self._handles.clear()

    def _opened(self, file: int) -> Handle:
        path, stamp = self._paths[file], self._stamps[file] if self._stamps else None
        if self._closed:
            raise ValueError(f"{path}: the reader of this file is closed")
        try:
            descriptor, _ = open_checked(path, self._lengths[file], stamp)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError(f"{path}: the file is gone since the data set was opened ({error.strerror})") from error
        handle = Handle(descriptor, self._handles, file)
        handles.add(handle, most_kept())
        self._handles[file] = handle
        if self._closed:  # by another thread meanwhile
            self._handles.clear()
        return handle

    def __reduce__(self) -> tuple[type[DataFiles], tuple[Sequence[str], Sequence[int], Sequence[Stamp]]]:
        return DataFiles, (self._paths, self._lengths, self._stamps)


class CheckedFile(Closing):
    """One file while a data set is opened or verified.

    Args:
        path: the file.
        length: the exact length that it must have.
        stamp: the stamp that it must have.

    Attributes:
        path, length, stamp: those of the open file.

    Raises:
        FormatError: it is not the expected file.
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, length: int | None = None, stamp: Stamp | None = None) -> None:
        self.path = path
        self.descriptor, self.stamp = open_checked(path, length, stamp)
        self.length = self.stamp.length

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at an offset; fewer if the file ended there when it was opened."""
        size = max(0, min(size, self.length - offset))
        data = _fetch(self.descriptor, size, offset, self.path)
        if data is None:
            raise self._cut(offset + size)
        return data

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill a buffer with the bytes at an offset.

        Raises:
            FormatError: the file ends too early.
            OSError: it cannot be read.
        """
        if not _fill(self.descriptor, buffer, offset, self.path):
            raise self._cut(offset + len(buffer))

    def _cut(self, end: int) -> FormatError:
        return wrong_length(self.path, os.fstat(self.descriptor).st_size, max(self.length, end))

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes from `begin` to `end` in pieces, each valid until the next."""
        buffer = memoryview(bytearray(max(0, min(_PIECE, end - begin))))
        while begin < end:
            piece = buffer[: end - begin]
            self.read_into(piece, begin)
            yield piece
            begin += len(piece)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _seek_and_read(descriptor: int, size: int, offset: int) -> bytes:
    """`os.pread`, for systems without it (Windows)."""
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


def _copy_into(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
    """`os.preadv`, for systems without it."""
    blob = _pread(descriptor, len(buffers[0]), offset)
    buffers[0][: len(blob)] = blob
    return len(blob)


_seeking = threading.Lock()
_pread = getattr(os, "pread", _seek_and_read)
_preadv = getattr(os, "preadv", _copy_into)


def _fetch(descriptor: int, size: int, offset: int, path: str) -> bytes | None:
    """Read bytes; None if the file ends too early."""
    try:
        data: bytes = _pread(descriptor, size, offset)
    except OSError as error:
        raise_resource_error(error, path)
        raise OSError(error.errno, error.strerror, path) from error
    if len(data) == size:
        return data
    buffer = bytearray(size)  # more than a system reads at once (2 GiB), or cut
    return bytes(buffer) if _fill(descriptor, memoryview(buffer), offset, path) else None


def _fill(descriptor: int, buffer: memoryview, offset: int, path: str) -> bool:
    """Read into all of `buffer`; False if the file ends too early."""
    done = 0
    try:
        while done < len(buffer):
            count = _preadv(descriptor, [buffer[done:] if done else buffer], offset + done)
            if not count:
                return False
            done += count
    except OSError as error:
        raise_resource_error(error, path)
        raise OSError(error.errno, error.strerror, path) from error
    return True


def most_kept() -> int:
    """How many files may stay open for reading in this process, by its present limit."""
    if sys.platform == "win32":
        return MOST_KEPT
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_KEPT if limit == resource.RLIM_INFINITY else max(1, min(MOST_KEPT, limit // _SHARE))


def open_checked(path: str, length: int | None = None, stamp: Stamp | None = None) -> tuple[int, Stamp]:
    """A descriptor of a regular file, which the caller closes, and the file's stamp.

    Raises:
        FormatError: it is not a regular file, has the wrong length, or is not the file that `stamp` describes.
        OSError: it cannot be opened.
    """
    descriptor, status = open_regular(path)
    try:
        found = stamp_of(status)
        if length is not None and found.length != length:
            raise wrong_length(path, found.length, length)
        if stamp is not None and found != stamp:
            raise FormatError(f"{path}: the file was replaced since the data set was opened; open it again")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def stamp_at(path: str) -> Stamp:
    """The stamp of the regular file at a path, without opening it.

    Raises:
        FormatError: it is not a regular file.
        OSError: there is none.
    """
    status = os.stat(path)
    check_regular(path, status)
    return stamp_of(status)


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def wrong_length(path: str, actual: int, length: int) -> FormatError:
    """The error for a file that was cut or appended to."""
    return FormatError(
        f"{path}: {actual} bytes, but its data set says {length}: it was cut or changed after it was written; "
        "copy it again from a whole one, or convert the data again"
    )
