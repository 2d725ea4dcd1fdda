"""Files of a data set: mapped whole, checked against the length and the identity that they should have.

In: paths and a manifest. Out: maps that live as long as somebody holds a view of them. Reading a map of a file that was
cut would be a crash, and reading a file that took the place of another would be wrong data; both are refused here.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import NamedTuple

from fastdata.errors import FormatError
from fastdata.manifest import MANIFEST_NAME, Manifest, is_manifest


class Stamp(NamedTuple):
    """What tells one file from another that has its name later."""

    device: int
    inode: int
    length: int
    changed: int


def map_file(path: str, length: int | None = None, stamp: Stamp | None = None) -> memoryview:
    """A read-only map of a whole file; it lives as long as a view of it.

    Raises:
        FormatError: the file has not the length that it should (reading a map of a cut file would be a crash), or is
            not the one that `stamp` is of.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = stamp_of(os.fstat(descriptor))
        if length is not None and found.length != length:
            raise wrong_length(path, found.length, length)
        if stamp is not None and found != stamp:
            raise FormatError(f"{path}: the file was replaced since the data set was opened; open it again")
        if not found.length:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, found.length, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def let_pages_go(views: Iterable[memoryview]) -> None:
    """Take the pages of maps out of this process; they stay in the system's cache, and come back when they are read.

    Views stay right. Where the system has no such advice, nothing happens.
    """
    advice = getattr(mmap, "MADV_DONTNEED", None)
    for view in views:
        if advice is not None and isinstance(view.obj, mmap.mmap):
            view.obj.madvise(advice)


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
