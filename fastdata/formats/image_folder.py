"""A folder of images that was not converted, read in the order in which `folder` walks it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fastdata.codec.sniff import sniff
from fastdata.errors import FastdataError, FormatError, as_resource_error
from fastdata.formats import folder
from fastdata.formats.base import READ_OPTIONS, Closing, ReadOptions, check_size, reopened
from fastdata.formats.index import IndexBuilder, index_hash
from fastdata.formats.rows import Rows, checked_row
from fastdata.formats.verify import Problem, Verified, message_of
from fastdata.manifest import Manifest
from fastdata.record import Record

# Files that a warning names; a conversion's report has all.
_SHOWN = 5


def open_folder(path: str, options: ReadOptions = READ_OPTIONS) -> FolderReader:
    """Open a folder of images.

    Warn of class folders that do not look like classes, and of files with an image's suffix that are left out.

    Raises:
        FormatError: no images, or a folder that cannot be listed: the data would depend on who reads them.
    """
    reader = FolderReader(path, options)
    for message in reader.warnings:
        warnings.warn(message, stacklevel=4)  # the caller of fastdata.open
    return reader


class FolderReader(Closing, Verified):
    """A Reader over the images of a folder; each read opens a file.

    Attributes:
        warnings: messages about its classes, and about files that are left out.
    """

    def __init__(self, path: str, options: ReadOptions = READ_OPTIONS) -> None:
        found = _scanned(path)
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
        self.warnings = _warnings(path, found)

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
        row = checked_row(index, len(self))
        path = self.paths[row]
        check_size(self, row, self.image_size(row))
        try:
            blob = folder.read_file(folder.path_below(self.path, path))
        except OSError as error:
            raise self._failure(row, error) from error
        return sniff(blob) or folder.suffix_format(path) or "jpg", blob

    def size(self, index: int) -> int:
        label = self.labels[checked_row(index, len(self))]
        return self.image_size(index) + (len(str(label)) if label >= 0 else 0)

    def image_size(self, index: int) -> int:
        row = checked_row(index, len(self))
        try:
            return os.stat(folder.path_below(self.path, self.paths[row])).st_size
        except OSError as error:
            raise self._failure(row, error) from error

    def _failure(self, row: int, error: OSError) -> FastdataError:
        where = f"{self.path}: record {self.keys[row]!r}"
        message = f"{where}: {self.paths[row]!r} cannot be read: {error.strerror or error}"
        return as_resource_error(error, where) or FormatError(message)

    def problems(self) -> Iterator[Problem]:
        """Check that every file still exists and is readable. (There are no checksums to compare with.)"""
        for row in range(len(self)):
            try:
                self.image(row)
            except Exception as error:
                yield Problem(row, self.keys[row], message_of(error, f"{self.path}: record {self.keys[row]!r}"))

    def close(self) -> None:
        """Nothing is kept open."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reopened, (partial(FolderReader, options=self.options), self.path, self.identity())

    def identity(self) -> str:
        """Distinguishes this folder from the same one with other files; their content is not read."""
        return index_hash(self._columns)

    def __repr__(self) -> str:
        return f"<folder {self.path!r}: {len(self)} images>"


def _scanned(path: str) -> folder.FolderScan:
    try:
        found = folder.scan(path)
    except OSError as error:
        raise FormatError(f"{path}: this folder cannot be listed: {error.strerror}") from error
    unlisted = [note for note in found.rejected if note in found.unread]
    if unlisted:
        more = f" ({len(unlisted) - 1:,} more like it)" if len(unlisted) > 1 else ""
        raise FormatError(
            f"{path}: {unlisted[0][0]}: {unlisted[0][1]}{more}, so the data would depend on who reads them; make it "
            "readable, or move it out of the folder"
        )
    return found


def _warnings(path: str, found: folder.FolderScan) -> list[str]:
    """Warnings about the classes, and about files that may be images and are not records."""
    messages = [f"{path}: {message}" for name, message in found.warnings if name == "."]
    left_out = found.rejected + found.unread
    if left_out:
        named = "; ".join(f"{name}: {reason}" for name, reason in left_out[:_SHOWN])
        more = f"; and {len(left_out) - _SHOWN:,} more" if len(left_out) > _SHOWN else ""
        messages.append(f"{path}: {len(left_out):,} files are left out: {named}{more}")
    return messages
