"""folder: an unconverted image folder, read as it is; and the walk over one that conversion shares.

Class folders give torchvision ImageFolder's names, numbers and order: class by class, folder by folder within a class
(sorted by their whole path), names sorted within a folder; so index i is the same picture as in torchvision. A folder
without class folders is flat: label -1, no classes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from fastdata.codec.sniff import IMAGE_SUFFIXES, SNIFF_BYTES, sniff
from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, Closing, ReadOptions, reopened
from fastdata.formats.descriptors import open_regular
from fastdata.formats.index import IndexBuilder, index_hash
from fastdata.formats.names import local, portable
from fastdata.formats.rows import Rows, checked_row
from fastdata.formats.verify import Problem, Verified, words_of
from fastdata.manifest import Manifest
from fastdata.record import Record, key_from_path

# Files and folders that systems leave behind: no samples, no classes, not worth a word. Names that start with a dot
# (AppleDouble's `._x.png`, `.DS_Store`, `.ipynb_checkpoints`) go with them.
SYSTEM_NAMES = frozenset(
    ("thumbs.db", "desktop.ini", "__macosx", "@eadir", "$recycle.bin", "system volume information")
)

Note = tuple[str, str]  # (path below the root, words)


class ImageRef(NamedTuple):
    """A picture that was found; nothing of it is read yet. `path` is relative to the folder, `/` between parts."""

    key: str
    path: str
    label: int


@dataclass(slots=True)
class FolderScan:
    """What a walk found: each file that is not hidden is in exactly one of `entries`, `ignored` and `rejected`."""

    classes: tuple[str, ...] = ()
    entries: list[ImageRef] = field(default_factory=list)
    ignored: list[Note] = field(default_factory=list)
    rejected: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)


def scan(root: str, *, natural: bool = False) -> FolderScan:
    """Walk an image folder.

    Links to files and folders are followed, loops end, pipes and devices are never opened. A file is an entry when its
    ending says image, or else its first bytes do.

    Args:
        root: the folder.
        natural: number the classes in natural order (1, 2, 10) instead of plain string order (1, 10, 2).

    Raises:
        NotADirectoryError, FileNotFoundError, PermissionError: `root` cannot be listed.
    """
    found = FolderScan()
    folders, files = _listed(root, "", found)
    if not folders:
        _add_files(root, "", files, -1, found)
        return found
    found.classes = tuple(sorted(folders, key=_natural if natural else None))
    for label, name in enumerate(found.classes):
        before = len(found.entries)
        for folder, names in sorted(_walk(root, name, found)):
            _add_files(root, folder + "/", names, label, found)
        if len(found.entries) == before:
            found.warnings.append((name, "a class without images keeps its number"))
    if found.entries:
        for name in files:
            _, words = _kind_of(root, name)
            found.ignored.append((name, words or "beside the class folders, not in one"))
        return found
    flat = FolderScan(rejected=found.rejected, ignored=found.ignored)  # pictures lie in the root alone
    _add_files(root, "", files, -1, flat)
    if flat.entries:
        flat.warnings = [(name, "no images in this folder: it was not taken for a class") for name in found.classes]
        return flat
    return found


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part], name


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is passed over without a word."""
    return name.startswith(".") or name.lower() in SYSTEM_NAMES


def _listed(root: str, folder: str, found: FolderScan) -> tuple[list[str], list[str]]:
    """The names of sub-folders and of regular files of one folder (`folder` ends in "/" or is "")."""
    folders, files = [], []
    with os.scandir(_place(root, folder)) as listing:
        for entry in listing:
            name = portable(entry.name)
            if is_hidden(name):
                continue
            path = folder + name
            try:
                kind = 0 if entry.is_dir() else 1 if entry.is_file() else 2
                dangling = kind == 2 and entry.is_symlink() and not os.path.exists(entry.path)
                words = "a link to nothing" if dangling else "not a regular file (pipe, socket or device)"
            except OSError as error:  # a link to itself, a file system that fails
                kind, words = 2, error.strerror or str(error)
            if kind == 0:
                folders.append(name)
            elif kind == 1:
                files.append(name)
            else:
                where = found.rejected if _suffix_format(name) else found.ignored
                where.append((path, words))
    return folders, files


def _walk(root: str, top: str, found: FolderScan) -> Iterator[tuple[str, list[str]]]:
    """(folder, file names) of `top` and all below it, in no order; folders that hold themselves by a link end there."""
    pending: list[tuple[str, frozenset[tuple[int, int]]]] = [(top, frozenset([_identity(root)]))]
    while pending:
        folder, above = pending.pop()
        try:
            identity = _identity(_place(root, folder))
            if identity in above:
                found.warnings.append((folder, "a link back to a folder that holds it: not followed"))
                continue
            folders, files = _listed(root, folder + "/", found)
        except OSError as error:
            found.rejected.append((folder, f"this folder cannot be listed: {error.strerror}"))
            continue
        yield folder, files
        pending += [(f"{folder}/{name}", above | {identity}) for name in folders]


def _place(root: str, path: str) -> str:
    """Where something below the root lies."""
    return os.path.join(root, local(path))


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _add_files(root: str, folder: str, names: list[str], label: int, found: FolderScan) -> None:
    """Sort the files of one folder into entries and the rest; entries get their keys by the key rule."""
    taken: set[str] = set()
    for name in sorted(names):
        path = folder + name
        kind, words = _kind_of(root, path)
        if kind is None:
            found.ignored.append((path, words))
            continue
        key = key_from_path(path)
        if key in taken:
            key = key_from_path(path, keep_suffix=True)
        taken.add(key)
        found.entries.append(ImageRef(key, path, label))


def _kind_of(root: str, path: str) -> tuple[str | None, str]:
    """What the ending, or else the first bytes, say of a file; None with the reason when neither says image."""
    kind = _suffix_format(path)
    if kind is None:
        try:
            kind = sniff(read_file(_place(root, path), SNIFF_BYTES))
        except OSError as error:
            return None, f"its ending does not say image, and it cannot be read: {error.strerror or error}"
    # An array is a picture in our files only.
    return (None, "not an image") if kind in (None, "npy") else (kind, "")


def _suffix_format(name: str) -> str | None:
    return IMAGE_SUFFIXES.get(os.path.splitext(name)[1].lower())


def read_file(path: str, limit: int = -1) -> bytes:
    """The bytes of a regular file; a pipe or device that took its place is refused, never waited for.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    try:
        descriptor, _ = open_regular(path)
    except FormatError as error:
        raise OSError(errno.EINVAL, "not a regular file", path) from error
    with open(descriptor, "rb", buffering=0) as file:
        return file.read(limit)


class FolderReader(Closing, Verified):
    """A Reader over the pictures of a folder; each read opens a file."""

    def __init__(self, path: str, options: ReadOptions = READ_OPTIONS) -> None:
        found = scan(path)
        if not found.entries:
            raise FormatError(
                f"{path}: neither a data set nor a folder with images; `fastdata convert` makes data sets"
            )
        builder = IndexBuilder()
        for ref in found.entries:
            builder.add_scanned(ref.key, ref.path, ref.label, [], [], [])
        self.path, self.classes, self.options = path, found.classes, options
        self._columns = builder.columns()
        self._rows = Rows(self._columns)
        self.keys, self.paths, self.labels = self._rows.keys, self._rows.paths, self._rows.labels
        self.manifest = Manifest("folder", len(found.entries), (), found.classes)

    def __len__(self) -> int:
        return self.manifest.count

    def __getitem__(self, index: int) -> Record:
        row = checked_row(index, len(self))
        name, blob = self.image(row)
        fields = {name: blob} | ({"cls": b"%d" % self.labels[row]} if self.labels[row] >= 0 else {})
        return Record(self.keys[row], fields, self.paths[row])

    def find(self, key: str) -> int:
        return self._rows.find(key)

    def image(self, index: int) -> tuple[str, bytes]:
        path = self.paths[checked_row(index, len(self))]
        blob = read_file(_place(self.path, path))
        return sniff(blob) or _suffix_format(path) or "jpg", blob

    def size(self, index: int) -> int:
        label = self.labels[checked_row(index, len(self))]
        return self.image_size(index) + (len(str(label)) if label >= 0 else 0)

    def image_size(self, index: int) -> int:
        return os.stat(_place(self.path, self.paths[checked_row(index, len(self))])).st_size

    def problems(self) -> Iterator[Problem]:
        """Is every file still there and readable? (There are no checksums to compare with.)"""
        for row in range(len(self)):
            try:
                self.image(row)
            except Exception as error:
                yield Problem(row, self.keys[row], words_of(error, f"{self.path}: record {self.keys[row]!r}"))

    def close(self) -> None:
        """Nothing is kept open."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reopened, (partial(FolderReader, options=self.options), self.path, self.identity())

    def identity(self) -> str:
        """Tells this folder from the same one with other files; their content is not looked at."""
        return index_hash(self._columns)

    def __repr__(self) -> str:
        return f"<folder {self.path!r}: {len(self)} images>"
