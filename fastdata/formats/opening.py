"""Read and check a data set's manifest, files and index while it is opened.

The files are not trusted: memory stays within bounds that do not depend on what they claim, and errors name the file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fastdata.errors import FormatError, resource_error
from fastdata.formats.descriptors import open_regular
from fastdata.formats.files import CheckedFile, Stamp, stamp_at, wrong_length
from fastdata.formats.index import Columns, unpack
from fastdata.formats.names import local
from fastdata.formats.rows import check_rows, check_shape
from fastdata.manifest import MANIFEST_NAME, Manifest, is_manifest

# Two million class names (one for each person in the largest sets of faces) are 40 MB; parsing JSON takes up to 25
# times its size in memory.
MOST_MANIFEST = 64 << 20
# An index of at most this size is copied, 0.2 s: two million records with their labels (ImageNet has 1.3 million).
# Touching a map of a file that was cut crashes the process. A larger index is mapped all the same, since each process
# that opens it would have its own copy; the length of the file is checked before its pages are touched.
MOST_COPIED = 256 << 20


def any_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder data set; None if there is none (other tools write a `manifest.json` as well).

    Raises:
        FormatError: damaged, or too large to be one.
    """
    path = os.path.join(folder, MANIFEST_NAME)
    if os.path.isdir(path):
        return None
    try:
        descriptor, status = open_regular(path)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb", buffering=0) as file:
        large = status.st_size > MOST_MANIFEST
        blob = file.read(1 << 10 if large else status.st_size)  # ours are recognized by their first entry
    if not is_manifest(blob):
        return None
    if large:
        raise _too_large(path, status.st_size)
    return Manifest.from_json(blob, path)


def read_manifest(folder: str, name: str) -> Manifest | None:
    """As `any_manifest`, of the format `name`.

    Raises:
        FormatError: damaged, or of another format.
    """
    manifest = any_manifest(folder)
    return None if manifest is None else checked_format(manifest, name, os.path.join(folder, MANIFEST_NAME))


def manifest_in(file: CheckedFile, begin: int, end: int, name: str) -> Manifest:
    """The manifest inside a data set of one file, of the format `name`.

    Raises:
        FormatError: there is none, it is damaged or of another format, or the file does not have the length it states.
    """
    if end - begin > MOST_MANIFEST:
        raise _too_large(file.path, end - begin)
    manifest = checked_format(Manifest.from_json(file.read(begin, end - begin), file.path), name, file.path)
    lengths = [entry.bytes for entry in manifest.files]
    if lengths != [file.length]:
        raise wrong_length(file.path, file.length, lengths[0] if lengths else 0)
    return manifest


def _too_large(where: str, size: int) -> FormatError:
    return FormatError(
        f"{where}: {size:,} bytes are too large for a manifest (at most {MOST_MANIFEST:,}): it is damaged or not "
        "a manifest; convert the data again"
    )


def checked_format(manifest: Manifest, name: str, where: str) -> Manifest:
    """Return the manifest if it has this format.

    Raises:
        FormatError: it has another one.
    """
    if manifest.format != name:
        raise FormatError(f"{where}: states format {manifest.format!r}, not {name!r}; convert the data again")
    return manifest


def check_files(root: str, manifest: Manifest, absent: Collection[str] = ()) -> tuple[list[str], list[Stamp]]:
    """The data files that a manifest lists below `root`, each there and of exactly the length it states.

    Args:
        root: the folder.
        manifest: its manifest.
        absent: names of files that will not be read, and are not checked.

    Raises:
        FormatError: naming the first file that is missing, not a regular file, or of another length.
    """
    files, stamps = [os.path.join(root, local(f.name)) for f in manifest.files], list[Stamp]()
    if len(set(files)) < len(files):
        raise FormatError(f"{root}: damaged manifest: it lists a file twice; convert the data again")
    for path, file in zip(files, manifest.files, strict=True):
        stamps.append(Stamp(0, 0, file.bytes, 0) if file.name in absent else _checked_stamp(path, file.bytes))
    if read_manifest(root, manifest.format) != manifest:  # replaced while the files were checked
        raise FormatError(f"{root}: the data set was replaced while it was opened; open it again")
    return files, stamps


def absent_files(root: str, manifest: Manifest) -> dict[str, FormatError]:
    """The files that `check_files` would refuse, with its errors, by name."""
    found = {}
    for file in manifest.files:
        try:
            _checked_stamp(os.path.join(root, local(file.name)), file.bytes)
        except FormatError as error:
            if resource_error(error) is not None:  # a failing disk or network says nothing about the shard
                raise
            found[file.name] = error
    return found


def _checked_stamp(path: str, length: int) -> Stamp:
    try:
        stamp = stamp_at(path)
    except FormatError:
        raise
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: a file of this data set cannot be read ({error}); copy it again") from error
    if stamp.length != length:
        raise wrong_length(path, stamp.length, length)
    return stamp


def check_index(columns: Columns, manifest: Manifest, lengths: Sequence[int], where: str) -> None:
    """Refuse an index that is inconsistent in itself, or with its manifest or the data files of these lengths.

    Raises:
        FormatError: naming what does not fit.
    """
    check_shape(columns, manifest.count, len(manifest.fields), where)
    check_rows(columns, len(manifest.fields), len(manifest.classes), lengths, where)


def load_index(
    path: str, stamp: Stamp, manifest: Manifest, lengths: Sequence[int]
) -> tuple[Columns, Callable[[], None] | None]:
    """The columns of an index that is a file of its own, and a check to call before they are used, if one is needed.

    Raises:
        FormatError: it is damaged, or was replaced meanwhile.
    """
    with CheckedFile(path, stamp.length, stamp) as file:
        loaded = load(file, [(0, file.length)])
    columns = unpack(loaded.parts[0], path)
    check_index(columns, manifest, lengths, path)
    return columns, loaded.check


@dataclass(frozen=True, slots=True)
class Loaded:
    """Parts of a file that stay readable while a data set is open.

    Attributes:
        parts: their bytes, read-only.
        check: called before they are used; raises FormatError if the file was cut since. None for copies.
    """

    parts: Sequence[memoryview]
    check: Callable[[], None] | None = None


def load(file: CheckedFile, extents: Sequence[tuple[int, int]]) -> Loaded:
    """Read parts of a file, given by (offset, size): copied, or mapped if they are large.

    Raises:
        FormatError: one of them does not lie in the file.
        OSError: they cannot be read, or the address space is exhausted.
    """
    for offset, size in extents:
        if not 0 <= offset <= offset + size <= file.length:
            raise wrong_length(file.path, file.length, offset + size)
    if sum(size for _, size in extents) > MOST_COPIED:
        return _mapped(file, extents)
    parts = []
    for offset, size in extents:
        buffer = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]  # numpy's stubs lag
        file.read_into(buffer, offset)
        parts.append(buffer.toreadonly())
    return Loaded(parts)


def _mapped(file: CheckedFile, extents: Sequence[tuple[int, int]]) -> Loaded:
    """Map the part of a file that these extents span, and no more of it."""
    page = mmap.ALLOCATIONGRANULARITY
    begin, end = min(offset for offset, _ in extents) // page * page, max(offset + size for offset, size in extents)
    path, length = file.path, file.length
    try:
        pages = mmap.mmap(file.descriptor, end - begin, access=mmap.ACCESS_READ, offset=begin)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error

    def check() -> None:  # touching pages that no longer exist would crash the process
        if pages.size() < end:
            raise wrong_length(path, pages.size(), length)

    view = memoryview(pages)
    return Loaded([view[offset - begin : offset - begin + size] for offset, size in extents], check)
