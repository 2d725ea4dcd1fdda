"""The walk over an image folder, which its reader (`image_folder`) and conversion share.

Class folders give torchvision ImageFolder's names, numbers and order: class by class, folder by folder within a class
(sorted by their whole path), names sorted within a folder; so index i is the same image as in torchvision. A folder
without class folders is flat: label -1, no classes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fastdata.codec.sniff import IMAGE_SUFFIXES, SNIFF_BYTES, sniff
from fastdata.errors import FormatError, raise_resource_error
from fastdata.formats.class_names import doubts
from fastdata.formats.descriptors import open_regular
from fastdata.formats.mounts import pseudo_devices
from fastdata.formats.names import local, portable
from fastdata.record import key_from_path

# Files and folders that operating systems create: neither samples nor classes, and not reported. The same holds for
# names that start with a dot (AppleDouble's `._x.png`, `.DS_Store`, `.ipynb_checkpoints`), except those of images.
SYSTEM_NAMES = frozenset(
    ("thumbs.db", "desktop.ini", "__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found")
)
# The longest chain of links that Linux follows.
_LINKS = 40

Note = tuple[str, str]  # (path below the root, message)


# Shared by all records of one file: a mapping for each would take more memory than the rest of the record.
_NO_OTHERS: Mapping[str, str] = {}


class ImageRef(NamedTuple):
    """The files that were found for one record; none is read yet.

    Attributes:
        key: the key of the record.
        path: the path of the image, relative to the folder, `/` between parts.
        label: its class number, -1 if it has none.
        others: paths of further files, by the names of the record fields that they become.
    """

    key: str
    path: str
    label: int
    others: Mapping[str, str] = _NO_OTHERS

    def __str__(self) -> str:
        return self.path


@dataclass(slots=True)
class FolderScan:
    """The result of a walk: each file that is not hidden is in exactly one of `entries`, `ignored` and `rejected`.

    Hidden files with an image's suffix are `ignored`, by name. `unread` lists once more what could not be read: folders
    that cannot be listed, which are `rejected` too, and files without a known suffix, which are `ignored`.
    """

    classes: tuple[str, ...] = ()
    entries: list[ImageRef] = field(default_factory=list)
    ignored: list[Note] = field(default_factory=list)
    rejected: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    unread: list[Note] = field(default_factory=list)


def scan(root: str, *, natural: bool = False) -> FolderScan:
    """Walk an image folder.

    Links to files and folders are followed, loops end, pipes and devices are never opened, pseudo file systems such as
    `/proc` are never entered. A file is an entry if its suffix or else its first bytes are those of an image.

    Args:
        root: the folder.
        natural: number the classes in natural order (1, 2, 10) instead of plain string order (1, 10, 2).

    Raises:
        NotADirectoryError, FileNotFoundError, PermissionError: `root` cannot be listed.
        OSError: it lies in a pseudo file system.
    """
    found, pseudo = FolderScan(), pseudo_devices()
    if kind := pseudo.get(_identity(root)[0]):
        raise OSError(errno.ENOTSUP, f"it is not on a disk, but in a pseudo file system ({kind})", root)
    folders, files = _listed(root, "", found)
    if not folders:
        _add_files(root, "", files, -1, found)
        return found
    found.classes = tuple(sorted(folders, key=_natural if natural else None))
    for label, name in enumerate(found.classes):
        before = len(found.entries)
        for folder, names in sorted(_walk(root, name, found, pseudo)):
            _add_files(root, folder + "/", names, label, found)
        if len(found.entries) == before:
            found.warnings.append((name, "a class without images keeps its number"))
    if found.entries:
        for name in files:
            _, reason = _kind_of(root, name, found)
            found.ignored.append((name, reason or "beside the class folders, not in one"))
        nested = any(ref.path.count("/") > 1 for ref in found.entries)
        found.warnings += [(".", message) for message in doubts(found.classes, nested=nested)]
        return found
    flat = FolderScan(
        rejected=found.rejected, ignored=found.ignored, unread=found.unread
    )  # images lie in the root alone
    _add_files(root, "", files, -1, flat)
    if flat.entries:
        flat.warnings = [(name, "no images in this folder: it is not counted as a class") for name in found.classes]
        return flat
    return found


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part], name


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is skipped silently."""
    return name.startswith(".") or name.lower() in SYSTEM_NAMES


def _listed(root: str, folder: str, found: FolderScan) -> tuple[list[str], list[str]]:
    """The names of the subfolders and regular files of one folder (`folder` ends in "/" or is "")."""
    folders, files = [], []
    with os.scandir(path_below(root, folder)) as listing:
        for entry in sorted(listing, key=lambda each: each.name):  # so that notes come in a fixed order
            name = portable(entry.name)
            path = folder + name
            if is_hidden(name):
                if _is_hidden_image(entry, name):
                    found.ignored.append((path, "a hidden file"))
                continue
            try:
                kind = 0 if entry.is_dir() else 1 if entry.is_file() else 2
                if kind == 1 and entry.is_symlink() and suffix_format(name) and not _leads_to_image(entry.path):
                    found.rejected.append((path, "a link to a file that is not an image"))
                    continue
                dangling = kind == 2 and entry.is_symlink() and not os.path.exists(entry.path)
                reason = "a link to nothing" if dangling else "not a regular file (pipe, socket or device)"
            except OSError as error:  # a link to itself
                raise_resource_error(error, entry.path)
                kind, reason = 2, error.strerror or str(error)
            if kind == 0:
                folders.append(name)
            elif kind == 1:
                files.append(name)
            else:
                where = found.rejected if suffix_format(name) else found.ignored
                where.append((path, reason))
    return folders, files


def _is_hidden_image(entry: os.DirEntry[str], name: str) -> bool:
    """Whether a hidden file has an image's suffix: it is reported, unlike AppleDouble's files and folders."""
    dot, suffix = name.rpartition(".")[1:]
    try:
        return (dot + suffix).lower() in IMAGE_SUFFIXES and not name.startswith("._") and not entry.is_dir()
    except OSError:
        return True


def _leads_to_image(link: str) -> bool:
    """Whether a link with an image's suffix leads to an image, by its target's suffix or else its first bytes.

    Only links are checked: the suffix of any other file counts as it is, and opening every file would take long.
    """
    target = link
    with contextlib.suppress(OSError):  # not a link any more
        for _ in range(_LINKS):
            target = os.path.join(os.path.dirname(target), os.readlink(target))
    if suffix_format(target):
        return True
    try:
        return sniff(read_file(link, SNIFF_BYTES)) not in (None, "npy")
    except OSError:  # the reason is raised when it is read
        return True


def _walk(root: str, top: str, found: FolderScan, pseudo: Mapping[int, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (folder, file names) of `top` and all folders below it, in no order.

    Links back to a folder above are not followed, nor are pseudo file systems, given by their devices.
    """
    pending: list[tuple[str, frozenset[tuple[int, int]]]] = [(top, frozenset([_identity(root)]))]
    while pending:
        folder, above = pending.pop()
        try:
            identity = _identity(path_below(root, folder))
            if identity in above:
                found.warnings.append((folder, "a link back to a folder that holds it: not followed"))
                continue
            if kind := pseudo.get(identity[0]):
                found.warnings.append((folder, f"a pseudo file system ({kind}): not followed"))
                continue
            folders, files = _listed(root, folder + "/", found)
        except OSError as error:
            raise_resource_error(error, path_below(root, folder))  # otherwise its images would be missing silently
            found.rejected.append((folder, f"this folder cannot be listed: {error.strerror}"))
            found.unread.append(found.rejected[-1])
            continue
        yield folder, files
        pending += [(f"{folder}/{name}", above | {identity}) for name in folders]


def path_below(root: str, path: str) -> str:
    """The path to open for a path below the root."""
    return os.path.join(root, local(path))


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _add_files(root: str, folder: str, names: list[str], label: int, found: FolderScan) -> None:
    """Add the files of one folder to the entries or to the ignored; entries get their keys by the key rule."""
    taken: set[str] = set()
    for name in sorted(names):
        path = folder + name
        kind, reason = _kind_of(root, path, found)
        if kind is None:
            found.ignored.append((path, reason))
            continue
        key = key_from_path(path)
        if key in taken:
            key = key_from_path(path, keep_suffix=True)
        taken.add(key)
        found.entries.append(ImageRef(key, path, label))


def _kind_of(root: str, path: str, found: FolderScan) -> tuple[str | None, str]:
    """The image format of a file by its suffix or else its first bytes; None and the reason if it is not an image."""
    kind = suffix_format(path)
    if kind is None:
        try:
            kind = sniff(read_file(path_below(root, path), SNIFF_BYTES))
        except OSError as error:
            raise_resource_error(error, path_below(root, path))
            reason = f"its suffix is not that of an image, and it cannot be read: {error.strerror or error}"
            found.unread.append((path, reason))
            return None, reason
    # An array is an image only in our own files.
    return (None, "not an image") if kind in (None, "npy") else (kind, "")


def suffix_format(name: str) -> str | None:
    return IMAGE_SUFFIXES.get(os.path.splitext(name)[1].lower())


def read_file(path: str, limit: int = -1) -> bytes:
    """Read a regular file; a pipe or device that replaced it is refused, never waited for.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    try:
        descriptor, _ = open_regular(path)
    except FormatError as error:
        raise OSError(errno.EINVAL, "not a regular file", path) from error
    with open(descriptor, "rb", buffering=0) as file:
        return file.read(limit)
