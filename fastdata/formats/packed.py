"""PackedReader: the reader of all packed formats.

A packed data set consists of files and a columnar index that locates each blob in them. Reading a blob is one read of a
file at that offset: no locks, no transactions, no handle that breaks in a forked child. A format only locates its files
and its columns; a pickled reader holds the path alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.info import most_bytes
from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, Closing, ReadOptions, check_size, reopened
from fastdata.formats.checksum import UNCHECKED, check, crc32
from fastdata.formats.files import Blobs, DataFiles, Scratch, Stamp
from fastdata.formats.index import Columns, index_hash
from fastdata.formats.labels import NO_LABELS, Blob, named_labels
from fastdata.formats.locations import BlobSource, LocatedReader, Locations, ReaderSource, record_rows
from fastdata.formats.locator import BlobLocator
from fastdata.formats.rows import Rows, check_shape, checked_row, rows_in
from fastdata.formats.verify import DATA_SET, Problem, Verified, check_index, locations_fit, message_of, name_of
from fastdata.manifest import Manifest
from fastdata.record import IMAGE_FIELDS, Record, parse_label


@dataclass(frozen=True, slots=True)
class Packed:
    """An opened data set of any packed format: everything that a PackedReader needs.

    Attributes:
        path: the data set, absolute.
        manifest: its description of itself.
        columns: the index (see `fastdata.formats.index`).
        files: the data files, absolute, by the index's file numbers.
        lengths: the exact length of each; checked at open for all, and again when a file is opened.
        reopen: opens the same data set again from `path` in another process.
        stamps: the stamp of each file when it was opened, so that a replaced file is not read by this index.
        check_rest: verifies everything around the blobs of some records, called if all blobs lie inside the files.
        options: how it is read.
        checksums: whether the index has checksums to compare with.
        check_columns: raises FormatError if the columns no longer exist; None for columns in memory.
    """

    path: str
    manifest: Manifest
    columns: Columns
    files: Sequence[str]
    lengths: Sequence[int]
    reopen: Callable[[str], Any]
    stamps: Sequence[Stamp] = ()
    check_rest: Callable[[Packed, range], Iterator[Problem]] | None = None
    options: ReadOptions = READ_OPTIONS
    checksums: bool = True
    check_columns: Callable[[], None] | None = None


class PackedReader(Closing, LocatedReader, Verified):
    """A Reader backed by a columnar index and data files (or memory)."""

    def __init__(self, packed: Packed, blobs: Blobs | None = None) -> None:
        columns = packed.columns
        self._packed = packed
        check_shape(columns, packed.manifest.count, len(packed.manifest.fields), packed.path)
        # memoryviews: one element costs 0.05 us, where np.memmap takes 0.27 (and gives numpy scalars)
        self._start, self._field, self._file, self._offset, self._size = (
            memoryview(columns[name])  # type: ignore[arg-type]  # numpy's stubs do not know arrays as buffers yet
            for name in ("start", "field", "file", "offset", "size")
        )
        self._names = packed.manifest.fields
        self._rows = Rows(columns, packed.path, packed.check_columns)
        self.checksums = columns["crc"] if packed.checksums and packed.manifest.fingerprint else None
        named = packed.options.image_field
        self._is_image = [name in IMAGE_FIELDS if named is None else name == named for name in self._names]
        if named is not None and packed.manifest.count and not any(self._is_image):
            raise FormatError(f"{packed.path}: no field {named!r}, which image_field names: there are {self._names}")
        longest = most_bytes(packed.options.max_pixels)
        self._locator = BlobLocator(
            columns, self._names, self._is_image, packed.lengths, longest, checksums=self.checksums is not None
        )
        self.keys, self.paths, self.labels = self._rows.keys, self._rows.paths, self._rows.labels
        self._blobs = DataFiles(packed.files, packed.lengths, packed.stamps) if blobs is None else blobs
        # Both computed once, however many shards are verified; and without a reference to this reader, a cycle.
        self.index_hash = functools.cache(lambda: index_hash(columns))
        keys = self.keys
        self._index_problems = functools.cache(lambda: [*check_index(columns, packed.manifest, keys, packed.path)])
        self._own_label = packed.options.label_field not in (None, NO_LABELS, "cls")  # which `cls` is then
        if packed.manifest.fingerprint and packed.options.label_field not in (None, "cls"):
            self.labels = self._named_labels()  # a scan of foreign data has read them already

    @property
    def path(self) -> str:
        return self._packed.path

    @property
    def manifest(self) -> Manifest:
        return self._packed.manifest

    @property
    def options(self) -> ReadOptions:
        return self._packed.options

    @property
    def classes(self) -> tuple[str, ...]:
        return self._packed.manifest.classes

    def __len__(self) -> int:
        return self._packed.manifest.count

    def __getitem__(self, index: int) -> Record:
        return self.record(index, verify=self._packed.options.verify)

    def record(self, index: int, *, verify: bool) -> Record:
        """As `reader[index]`; with `verify`, the checksums of all its fields are compared.

        Raises:
            FormatError: the record is damaged.
        """
        row = checked_row(index, len(self))
        fields = {self._name(blob): bytes(self._checked(row, blob, verify)) for blob in self._span(row)}
        if self._own_label:
            fields["cls"] = b"%d" % self.labels[row]
        return Record(self.keys[row], fields, self.paths[row], self._packed.options.image_field or "")

    def blob(self, index: int, field: str, *, verify: bool) -> bytes | None:
        row = checked_row(index, len(self))
        if field == "cls" and self._own_label:
            return b"%d" % self.labels[row]
        blob = next((blob for blob in self._span(row) if self._name(blob) == field), None)
        return None if blob is None else bytes(self._checked(row, blob, verify))

    def find(self, key: str) -> int:
        """The index of the record with this key.

        Raises:
            FormatError: the index is damaged at the position of its hash.
            KeyError: there is none.
        """
        return self._rows.find(key)

    def rows_in_file(self, name: str) -> range | None:
        """The records whose blobs lie in the data file with this base name; None if no such file is listed."""
        names = [os.path.basename(path) for path in self._packed.files]
        self._check_columns()
        return rows_in(self._packed.columns, names.index(name)) if name in names else None

    def image(
        self, index: int, scratch: Scratch | None = None, *, verify: bool | None = None
    ) -> tuple[str, bytes | memoryview]:
        """The name of the field that holds the image, and a read-only view of its bytes.

        Args:
            index: the record.
            scratch: the buffer to read into, valid until it is used again; None takes memory of their own.
            verify: compare the checksum; None does so if the data set was opened with it.

        Raises:
            FormatError: the record has no image, is damaged, or longer than an image of `max_pixels` can be.
        """
        blob = self._image_blob(row := checked_row(index, len(self)))
        check_size(self, row, self._size[blob])
        verify = self._packed.options.verify if verify is None else verify
        return self._name(blob), self._checked(row, blob, verify, scratch)

    def size(self, index: int) -> int:
        """The number of bytes of all fields together."""
        row = checked_row(index, len(self))
        span = self._span(row)
        if not self._own_label:
            return sum(self._size[blob] for blob in span)
        return sum(self._size[blob] for blob in span if self._name(blob) != "cls") + len(str(self.labels[row]))

    def _named_labels(self) -> NDArray[np.int64]:
        # A blob's number is used as its offset.
        rows = ({self._name(n): Blob(0, n, self._size[n]) for n in self._span(row)} for row in range(len(self)))
        named = self._packed.options.label_field
        return named_labels(self.path, named, self.keys, rows, lambda blob: bytes(self._view(blob.offset)))

    def blob_source(self, field: str | None = None) -> BlobSource:
        return ReaderSource(self, field) if field == "cls" and self._own_label else self._blobs

    def locations(self, indices: NDArray[np.int64], field: str | None = None) -> Locations:
        self._check_columns()
        derived = field == "cls" and self._own_label
        return record_rows(indices) if derived else self._locator.locations(indices, field)

    def image_size(self, index: int) -> int:
        """The number of bytes of the encoded image."""
        return int(self._size[self._image_blob(checked_row(index, len(self)))])

    def _check_columns(self) -> None:
        """Raise if the columns no longer exist; called before they are read."""
        if self._packed.check_columns is not None:
            self._packed.check_columns()

    def _span(self, row: int) -> range:
        """The blobs of a record."""
        self._check_columns()
        first, last = self._start[row], self._start[row + 1]
        if not 0 <= first <= last <= len(self._field):
            raise self._damaged(f"record {row} has the blobs {first} to {last} of {len(self._field)}")
        return range(first, last)

    def _name(self, blob: int) -> str:
        code = self._field[blob]
        if code >= len(self._names):
            raise self._damaged(f"no field number {code}")
        return self._names[code]

    def _image_blob(self, row: int) -> int:
        span = self._span(row)
        for blob in span:
            code = self._field[blob]
            if code < len(self._is_image) and self._is_image[code]:
                return blob
        names = [self._name(blob) for blob in span]
        named = self._packed.options.image_field
        what = "no image" if named is None else f"no field {named!r}, which image_field names"
        raise FormatError(f"{self.path}: record {self.keys[row]!r} has {what}: its fields are {names}")

    def _checked(self, row: int, blob: int, verify: bool, scratch: Scratch | None = None) -> bytes | memoryview:
        data = self._view(blob, scratch)
        try:
            check(data, UNCHECKED if self.checksums is None or not verify else int(self.checksums[blob]))
        except FormatError as error:
            raise FormatError(f"{self.path}: record {self.keys[row]!r}: field {self._name(blob)!r}: {error}") from None
        return data

    def _view(self, blob: int, scratch: Scratch | None = None) -> bytes | memoryview:
        offset, size, file = self._offset[blob], self._size[blob], self._file[blob]
        if not 0 <= file < len(self._blobs):
            raise self._damaged(f"no data file number {file}")
        if not 0 <= offset <= offset + size <= self._packed.lengths[file]:
            raise self._damaged(f"a blob at {offset} of {size} bytes does not lie in {self._packed.files[file]!r}")
        return self._blobs.read(file, offset, size, scratch)

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: damaged index: {what}; run `fastdata verify`, or convert the data again")

    def problems(self) -> Iterator[Problem]:
        return self.problems_in(range(len(self)))

    def problems_in(self, rows: range) -> Iterator[Problem]:
        """The problems of some records, and of the data set itself."""
        try:
            self._check_columns()
        except FormatError as error:
            yield Problem(DATA_SET, self.path, str(error))
            return
        checked = bool(self.manifest.fingerprint)  # foreign data have no checksums, and their index was built here
        whole = not checked or self.index_hash() == self.manifest.index_sha256
        if not whole:
            yield Problem(DATA_SET, self.path, "the index has changed since it was written")
        if checked:
            yield from (found for found in self._index_problems() if found.row == DATA_SET or found.row in rows)
        for row in rows:
            yield from self._row_problems(row, checked)
        rest = self._packed.check_rest if whole else None  # locations that do not fit were reported with the records
        if rest is not None and locations_fit(self._packed.columns, len(self._names), self._packed.lengths):
            try:
                yield from rest(self._packed, rows)
            except Exception as error:
                yield Problem(DATA_SET, self.path, message_of(error, self.path))

    def _row_problems(self, row: int, checked: bool) -> Iterator[Problem]:
        key, label, stated = name_of(self.keys, row), -1, self._rows.labels[row]
        try:
            for blob in self._span(row):
                name, data = self._name(blob), self._view(blob)
                crc, wanted = crc32(data), int(self._packed.columns["crc"][blob])
                if checked and crc != wanted:
                    message = f"field {name!r} has changed: CRC-32 {crc:08x}, written as {wanted:08x}"
                    yield Problem(row, key, message)
                if checked and name == "cls":  # the original value of a changed one is not known
                    label = parse_label(key, data) if crc == wanted else int(stated)
            if checked and label != stated:
                yield Problem(row, key, f"the index has the label {stated}, its fields have {label}")
        except Exception as error:
            yield Problem(row, key, message_of(error, f"{self.path}: record {key!r}"))

    def close(self) -> None:
        """Close the files; views that are still held stay valid."""
        self._blobs.close()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reopened, (self._packed.reopen, self.path, self.identity())

    def identity(self) -> str:
        """Distinguishes this data set from a later one at the same path; foreign data are known by their index."""
        return self.manifest.fingerprint or self.index_hash()

    def __repr__(self) -> str:
        return f"<{self.manifest.format} data set {self.path!r}: {len(self)} records>"
