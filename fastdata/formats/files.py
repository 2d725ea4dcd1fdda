"""Files of a data set: checked against the length and the identity that they should have, then mapped or read.

In: paths and a manifest. Out: views of maps, which live as long as somebody holds them, or bytes read into memory of
the caller's. Reading a map of a file that was cut would be a crash, and reading a file that took the place of another
would be wrong data; both are refused here.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from fastdata.errors import FormatError
from fastdata.manifest import MANIFEST_NAME, Manifest, is_manifest


class Stamp(NamedTuple):
    """What tells one file from another that has its name later."""

    device: int
    inode: int
    length: int
    changed: int


# Each map keeps a descriptor, as does each file that is read, and 1,024 is a common limit; of each kind this many are
# kept, and the oldest let go.
MOST_KEPT = 128
# A usual picture fits, so that the memory does not grow step by step; what is larger than most is not kept.
_FIRST_ROOM, _MOST_ROOM = 1 << 18, 1 << 24

_Kept = TypeVar("_Kept")


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


class _Handle:
    """A descriptor, closed when nobody uses it any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


class _Recent(Generic[_Kept]):
    """What was made for the files that were used last; the oldest is let go, and ends when nobody uses it any more."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self.get = self._kept.get

    def keep(self, file: int, made: _Kept) -> _Kept:
        self._kept[file] = made
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return made

    def clear(self) -> None:
        self._kept.clear()


class DataFiles:
    """The data files of a data set; each is opened when it is first asked for.

    Args:
        paths: the files, by number.
        lengths: the exact length that each must have.
        stamps: what each was when the data set was opened; empty where that is not known.
    """

    def __init__(self, paths: Sequence[str], lengths: Sequence[int], stamps: Sequence[Stamp]) -> None:
        self._paths, self._lengths, self._stamps = paths, lengths, stamps
        self._maps, self._handles = _Recent[memoryview](), _Recent[_Handle]()
        self._closed = False

    def __len__(self) -> int:
        return len(self._paths)

    def view(self, file: int, offset: int, size: int) -> memoryview:
        """Bytes of a file, where they are mapped; fewer where the file ends.

        Raises:
            FormatError: the file is not what it was, or has another length.
            ValueError: all was closed.
        """
        mapped = self._maps.get(file)
        if mapped is None:
            mapped = self._maps.keep(file, map_file(*self._checked(file)))
        return mapped[offset : offset + size]

    def read(self, file: int, offset: int, size: int, scratch: Scratch) -> memoryview:
        """Bytes of a file, read into `scratch`: the process never holds more of the file than this.

        Raises:
            FormatError: as `view`, or the file ends before: it was cut since it was opened.
            OSError: it cannot be read.
            ValueError: all was closed.
        """
        if not hasattr(os, "preadv"):
            return self.view(file, offset, size)
        handle = self._handles.get(file)
        if handle is None:
            handle = self._handles.keep(file, _Handle(open_checked(*self._checked(file))[0]))
        room, done = scratch.room(size), 0
        while done < size:
            count = os.preadv(handle.descriptor, [room[done:] if done else room], offset + done)
            if not count:
                raise wrong_length(self._paths[file], os.fstat(handle.descriptor).st_size, self._lengths[file])
            done += count
        return room.toreadonly()

    def close(self) -> None:
        """Let go of all; views that somebody holds stay right until they are dropped."""
        self._closed = True
        self._maps.clear()
        self._handles.clear()

    def __reduce__(self) -> tuple[type[DataFiles], tuple[Sequence[str], Sequence[int], Sequence[Stamp]]]:
        return DataFiles, (self._paths, self._lengths, self._stamps)

    def _checked(self, file: int) -> tuple[str, int, Stamp | None]:
        if self._closed:
            raise ValueError(f"{self._paths[file]}: the reader of this file is closed")
        return self._paths[file], self._lengths[file], self._stamps[file] if self._stamps else None


def map_file(path: str, length: int | None = None, stamp: Stamp | None = None) -> memoryview:
    """A read-only map of a whole file; it lives as long as a view of it.

    Raises:
        FormatError: the file has not the length that it should (reading a map of a cut file would be a crash), or is
            not the one that `stamp` is of.
    """
    descriptor, found = open_checked(path, length, stamp)
    try:
        return memoryview(mmap.mmap(descriptor, found, access=mmap.ACCESS_READ)) if found else memoryview(b"")
    finally:
        os.close(descriptor)


def open_checked(path: str, length: int | None = None, stamp: Stamp | None = None) -> tuple[int, int]:
    """A descriptor of a file, and its length.

    Raises:
        FormatError: it has not the length that it should, or is not the one that `stamp` is of.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = stamp_of(os.fstat(descriptor))
        if length is not None and found.length != length:
            raise wrong_length(path, found.length, length)
        if stamp is not None and found != stamp:
            raise FormatError(f"{path}: the file was replaced since the data set was opened; open it again")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found.length


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def wrong_length(path: str, actual: int, length: int) -> FormatError:
    """The error for a file that was cut or appended to."""
    return FormatError(
        f"{path}: {actual} bytes, but its data set says {length}: it was cut or changed after it was written; "
        "copy it again from a whole one, or convert the data again"
    )


def check_files(root: str, manifest: Manifest) -> tuple[list[str], list[Stamp]]:
    """The data files that a manifest lists below `root`, each there and of exactly the length it states.

    Raises:
        FormatError: naming the first file that is missing or has another length.
    """
    files, stamps = [os.path.join(root, f.name) for f in manifest.files], list[Stamp]()
    for path, length in zip(files, (f.bytes for f in manifest.files), strict=True):
        try:
            stamps.append(stamp_of(os.stat(path)))
        except (OSError, ValueError) as error:
            raise FormatError(f"{path}: a file of this data set cannot be read ({error}); copy it again") from error
        if stamps[-1].length != length:
            raise wrong_length(path, stamps[-1].length, length)
    if read_manifest(root, manifest.format) != manifest:  # swapped between the manifest and the last of the files
        raise FormatError(f"{root}: the data set was replaced while it was opened; open it again")
    return files, stamps


def read_manifest(folder: str, name: str) -> Manifest | None:
    """The manifest of a folder data set; None where there is none (other tools write a `manifest.json` as well).

    Raises:
        FormatError: damaged, or of another format than `name`.
    """
    path = os.path.join(folder, MANIFEST_NAME)
    try:
        with open(path, "rb") as file:
            blob = file.read()
    except FileNotFoundError:
        return None
    return checked_format(Manifest.from_json(blob, path), name, path) if is_manifest(blob) else None


def checked_format(manifest: Manifest, name: str, where: str) -> Manifest:
    """The manifest itself, if it is of the format that its place says."""
    if manifest.format != name:
        raise FormatError(f"{where}: says format {manifest.format!r}, not {name!r}; convert the data again")
    return manifest
