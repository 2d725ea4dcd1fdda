"""Files of a data set: checked against the kind, length and identity that they should have, then read by offset.

In: paths and what is known of them. Out: bytes. Data are not mapped: to touch a map of a file that was cut meanwhile is
a crash of the process, where a read is an error; and a map counts against limits of address space. A file that
replaced another would be wrong data, so it is refused.
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


# So many files stay open in a process, of all its readers together. To open one again costs 20 us, a tenth of what a
# sample takes; and of what a process may have open, at most this share, for others need descriptors, too.
MOST_KEPT, _SHARE = 256, 4
# A usual image fits, so that the memory does not grow step by step; what is larger than most is not kept.
_FIRST_ROOM, _MOST_ROOM = 1 << 18, 1 << 24
# What is hashed is read in pieces of this size: one costs some 100 us, and so little beside it to ask for.
_PIECE = 1 << 20


class Scratch(threading.local):
    """Memory that blobs are read into, one for each thread, taken again for each: fresh pages would cost time."""

    _memory = memoryview(b"")

    def room(self, size: int) -> memoryview:
        """Memory of this size; what lay there before is overwritten."""
        if size > _MOST_ROOM:
            return memoryview(bytearray(size))
        if size > len(self._memory):
            self._memory = memoryview(bytearray(min(max(2 * size, _FIRST_ROOM), _MOST_ROOM)))
        return self._memory[:size]

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()


class Blobs(Protocol):
    """Where the bytes of a data set lie: `DataFiles`, or memory."""

    def __len__(self) -> int: ...
    def read(self, file: int, offset: int, size: int, scratch: Scratch | None = None, /) -> bytes | memoryview: ...
    def close(self) -> None: ...


class DataFiles:
    """The data files of a data set; each is opened when it is first asked for.

    Args:
        paths: the files, by number.
        lengths: the exact length that each must have.
        stamps: what each was when the data set was opened; empty where that is not known.
    """

    def __init__(self, paths: Sequence[str], lengths: Sequence[int], stamps: Sequence[Stamp]) -> None:
        self._paths, self._lengths, self._stamps = paths, lengths, stamps
        self._handles = Handles()
        self._closed = False

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, file: int, offset: int, size: int, scratch: Scratch | None = None) -> bytes | memoryview:
        """Bytes of a file, in `scratch` until that is used again; without one, for good.

        Raises:
            FormatError: the file is gone, or not what it was, or ends before: it was cut since it was opened.
            OSError: it cannot be read.
            ValueError: all was closed.
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
        """Close all files; what was read stays right."""
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
        if self._closed:  # by another thread, just now
            self._handles.clear()
        return handle

    def __reduce__(self) -> tuple[type[DataFiles], tuple[Sequence[str], Sequence[int], Sequence[Stamp]]]:
        return DataFiles, (self._paths, self._lengths, self._stamps)


class CheckedFile(Closing):
    """One file while a data set is opened or verified; what is read of it is there, or an error.

    Args:
        path: the file.
        length: the exact length that it must have.
        stamp: what it was before.

    Attributes:
        path, length, stamp: of the file that is open.

    Raises:
        FormatError: it is not what it should be.
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, length: int | None = None, stamp: Stamp | None = None) -> None:
        self.path = path
        self.descriptor, self.stamp = open_checked(path, length, stamp)
        self.length = self.stamp.length

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at an offset; fewer where the file ended already when it was opened."""
        size = max(0, min(size, self.length - offset))
        data = _fetch(self.descriptor, size, offset, self.path)
        if data is None:
            raise self._cut(offset + size)
        return data

    def read_into(self, room: memoryview, offset: int) -> None:
        """Fill memory with the bytes at an offset.

        Raises:
            FormatError: the file ends before.
            OSError: it cannot be read.
        """
        if not _fill(self.descriptor, room, offset, self.path):
            raise self._cut(offset + len(room))

    def _cut(self, end: int) -> FormatError:
        return wrong_length(self.path, os.fstat(self.descriptor).st_size, max(self.length, end))

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        """The bytes from `begin` to `end`, a piece at a time, each right until the next."""
        room = memoryview(bytearray(max(0, min(_PIECE, end - begin))))
        while begin < end:
            piece = room[: end - begin]
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


def _copy_into(descriptor: int, rooms: Sequence[memoryview], offset: int) -> int:
    """`os.preadv`, for systems without it."""
    blob = _pread(descriptor, len(rooms[0]), offset)
    rooms[0][: len(blob)] = blob
    return len(blob)


_seeking = threading.Lock()
_pread = getattr(os, "pread", _seek_and_read)
_preadv = getattr(os, "preadv", _copy_into)


def _fetch(descriptor: int, size: int, offset: int, path: str) -> bytes | None:
    """Read bytes; None where the file ends before."""
    try:
        data: bytes = _pread(descriptor, size, offset)
    except OSError as error:
        raise_resource_error(error, path)
        raise OSError(error.errno, error.strerror, path) from error
    if len(data) == size:
        return data
    room = bytearray(size)  # more than a system reads at once (2 GiB), or cut
    return bytes(room) if _fill(descriptor, memoryview(room), offset, path) else None


def _fill(descriptor: int, room: memoryview, offset: int, path: str) -> bool:
    """Read into all of `room`; False where the file ends before."""
    done = 0
    try:
        while done < len(room):
            count = _preadv(descriptor, [room[done:] if done else room], offset + done)
            if not count:
                return False
            done += count
    except OSError as error:
        raise_resource_error(error, path)
        raise OSError(error.errno, error.strerror, path) from error
    return True


def most_kept() -> int:
    """How many files may stay open for reading in this process, by the limit that it has now."""
    if sys.platform == "win32":
        return MOST_KEPT
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_KEPT if limit == resource.RLIM_INFINITY else max(1, min(MOST_KEPT, limit // _SHARE))


def open_checked(path: str, length: int | None = None, stamp: Stamp | None = None) -> tuple[int, Stamp]:
    """A descriptor of a regular file, which the caller closes, and what it is.

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
