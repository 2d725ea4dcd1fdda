"""Foreign LMDBs: walked once to locate the values, which are then read as records.

The index is kept in memory; nothing is written beside the data.

Entries are named by key and field as everywhere (`KEY.jpg`, `KEY.cls`), or by a key alone; the content of the latter
is then detected.
Labels may have entries of their own: `label-000000001` beside `image-000000001`, or by a pattern that is given.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from functools import partial

from fastdata.codec.sniff import READABLE, SNIFF_BYTES, sniff
from fastdata.errors import FormatError, OptionError
from fastdata.formats.base import ReadOptions
from fastdata.formats.files import CheckedFile
from fastdata.formats.foreign import ForeignIndex
from fastdata.formats.index import IndexBuilder
from fastdata.formats.labels import Blob, Tally
from fastdata.formats.lmdb_pages import walk
from fastdata.formats.packed import Packed, PackedReader
from fastdata.manifest import Manifest

# Bookkeeping of other tools beside the records: counts, lists of keys, descriptions.
_BOOKKEEPING = re.compile(
    r"__.+__|[-_]*(?:(?:num|n|nr|total)[-_]?(?:samples|images|imgs|examples|records|items|data)"
    r"|len|length|size|count|total|keys|key[-_]?list|meta(?:[-_]?(?:data|info))?|info|version|shape|dtype|date)[-_]*",
    re.IGNORECASE,
)
_META = re.compile(r"__[^/]*__($|[./])")
# The key of an image whose label's key has the same number; and patterns that users give.
_NUMBERED = re.compile(r"(?:image|img)([-_:]?\d+)")
_PATTERN = re.compile(r"([^%]*)%(?:0?(\d{0,3})d|(s))([^%]*)")


def open_foreign(path: str, data: str, options: ReadOptions) -> PackedReader:
    """Open a foreign LMDB.

    Args:
        path: the path that was opened.
        data: its data file.
        options: how it is read.

    Raises:
        FormatError: cut, damaged, of an unsupported kind, or with entries that are not images.
    """
    with CheckedFile(data) as file:
        builder = _Scan(path, FileBytes(file), options).index([os.path.dirname(data)] if path != data else [])
    stamp = file.stamp
    manifest = Manifest("lmdb", len(builder), tuple(builder.fields))
    reopen = partial(_reopen, data, options)
    options = dataclasses.replace(
        options, image_field=_field(options.image_field), label_field=_field(options.label_field)
    )
    return PackedReader(
        Packed(path, manifest, builder.columns(), [data], [stamp.length], reopen, [stamp], options=options)
    )


def _field(name: str | None) -> str | None:
    """The name of a field, None for a pattern of keys, which is not needed once the entries are known."""
    return None if name and "%" in name else name


def _reopen(data: str, options: ReadOptions, path: str) -> PackedReader:
    return open_foreign(path, data, options)


class FileBytes:
    """A file as a sequence of bytes. A part that was cut off meanwhile raises an error; a memory map would crash."""

    def __init__(self, file: CheckedFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.length

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._file.length)
        return self._file.read(start, stop - start)


class _Scan:
    """The walk over the entries, which is done twice if labels have entries of their own."""

    def __init__(self, path: str, data: FileBytes, options: ReadOptions) -> None:
        self._path, self._data = path, data
        self._image_field, self._label_field = options.image_field, options.label_field
        self._images, self._labels = _Pattern.of("image_field", options.image_field), None
        if options.label_field:
            self._labels = _Pattern.of("label_field", options.label_field)
        # Entries that are neither fields nor images nor bookkeeping: those that may be labels, and the others.
        self._others, self._unread = dict[str, Blob](), Tally()

    def index(self, folders: list[str]) -> IndexBuilder:
        """Index all records; `folders` may hold a file of labels beside the data."""
        index = self._walked(None)
        labels = self._others
        if self._labels or labels:
            self._others, self._unread = {}, Tally()
            index = self._walked(labels)
            for name in labels:  # the ones that belong to no record
                self._unread.add(repr(name))
        if self._images is None:  # otherwise a pattern tells which entries are images
            index.add_others(self._unread)
        return index.finish(folders)

    def _walked(self, labels: dict[str, Blob] | None) -> ForeignIndex:
        """Index all records; each takes its label out of `labels`, if any are given."""
        label_field = "cls" if self._labels else self._label_field
        index = ForeignIndex(self._path, "entries", _field(self._image_field), label_field, self._read)
        known, without = frozenset(labels or ()), Tally()
        for key, fields in self._grouped(known):
            if labels is not None:
                name = self._label_key(key)
                if name in labels:
                    fields["cls" if self._label_field is None or self._labels else "label"] = labels.pop(name)
                else:
                    without.add(f"{key!r} without {name!r}")
            index.add(key, fields)
        if labels is not None and without.count and (self._labels or len(labels) < len(known)):
            raise FormatError(
                f"{self._path}: {without.of('image')} without an entry with the label, such as {without.first}; "
                "label_field='' reads the data without labels"
            )
        return index

    def _read(self, blob: Blob) -> bytes:
        return self._data[blob.offset : blob.offset + blob.size]

    def _label_key(self, key: str) -> str:
        """The key of the entry that may hold a record's label; "" if there can be none."""
        if self._labels is not None:
            return self._labels.label_of(key)
        numbered = _NUMBERED.fullmatch(key)
        return f"label{numbered[1]}" if numbered else ""

    def _grouped(self, known: frozenset[str]) -> Iterator[tuple[str, dict[str, Blob]]]:
        """Neighbouring entries with the same key before the first dot of the last part, as WebDataset groups them."""
        current, fields = "", dict[str, Blob]()
        for raw, offset, size in walk(self._data, self._path):
            name, blob = raw.decode("utf-8", "surrogateescape"), Blob(0, offset, size)
            if name in known or _BOOKKEEPING.fullmatch(name) or _META.match(name):
                continue
            key, field = self._split(name, blob)
            if not field:
                if self._labels.fits(name) if self._labels else name.startswith("label"):
                    self._others[name] = blob
                else:
                    self._unread.add(repr(name))
                continue
            if key != current and fields:
                yield current, fields
                fields = {}
            current = key
            if field in fields:
                raise FormatError(f"{self._path}: sample {key!r} has field {field!r} twice; convert the images again")
            fields[field] = blob
        if fields:
            yield current, fields

    def _split(self, name: str, blob: Blob) -> tuple[str, str]:
        """The key and field of an entry; the field is "" if its name has none and it is not an image."""
        head, slash, base = name.rpartition("/")
        stem, dot, field = base.partition(".")
        if self._images is None and dot and stem and "\0" not in name:  # a key with NULs is a number, not text
            return head + slash + stem, field.lower()
        kind = None
        if self._images is None or self._images.fits(name):
            kind = sniff(self._data[blob.offset : blob.offset + min(blob.size, SNIFF_BYTES)])
        return name, kind if kind is not None and kind in READABLE else ""


class _Pattern:
    """Keys with a number, as `image-%09d` describes them, or with another key in them, as `%s-label` does."""

    def __init__(self, before: str, width: int, whole: bool, after: str) -> None:
        self._before, self._width, self._whole, self._after = before, width, whole, after
        inner = ".+" if whole else rf"\d{{{max(1, width)},}}"
        self._regex = re.compile(re.escape(before) + inner + re.escape(after), re.DOTALL)

    @classmethod
    def of(cls, name: str, text: str | None) -> _Pattern | None:
        """The pattern in an argument; None if it is not a pattern.

        Raises:
            OptionError: a pattern that is not supported.
        """
        if text is None or "%" not in text:
            return None
        parts = _PATTERN.fullmatch(text)
        if parts is None:
            raise OptionError(f"{name} {text!r}: a pattern holds one number, such as %d or %09d, or one %s for a key")
        return cls(parts[1], int(parts[2] or 0), parts[3] is not None, parts[4])

    def fits(self, key: str) -> bool:
        return self._regex.fullmatch(key) is not None

    def label_of(self, key: str) -> str:
        """The key that belongs to an image's: with its last number, or with all of it."""
        if self._whole:
            return self._before + key + self._after
        digits = re.findall(r"\d+", key)
        return f"{self._before}{int(digits[-1]):0{self._width}d}{self._after}" if digits else ""
