"""Rows: what an index says of records, as readers ask for it: names, labels, and where pictures lie.

In: the columns (`fastdata.formats.index`). Out: strings that are made when they are asked for, the way from a key to
its record, and the places of many pictures at once. Nothing is copied.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.formats.checksum import UNCHECKED
from fastdata.formats.index import Columns, key_hash
from fastdata.formats.places import COLUMNS, NOWHERE


def check_shape(columns: Columns, count: int, fields: int, where: str) -> None:
    """Refuse an index whose columns do not fit together. Reads a few pages only; `verify` checks every row.

    Raises:
        FormatError: naming the file and what does not fit.
    """
    blobs = len(columns["offset"])
    wanted = {
        "start": count + 1,
        "key_end": count + 1,
        "path_end": count + 1,
        "label": count,
        "hash": count,
        "hash_row": count,
    }
    wanted |= {"field": blobs, "file": blobs, "size": blobs, "crc": blobs}
    wrong = [name for name, length in wanted.items() if len(columns[name]) != length]
    if not wrong:
        ends = {"start": blobs, "key_end": len(columns["key_bytes"]), "path_end": len(columns["path_bytes"])}
        wrong = [name for name, end in ends.items() if columns[name][0] != 0 or columns[name][-1] != end]
    if wrong or fields < 1 <= blobs:
        raise FormatError(
            f"{where}: damaged index (column {', '.join(wrong) or 'field'} does not fit); convert the data again"
        )


class Rows:
    """The part of an index that names records: keys, source paths, labels, and the way from a key to its record."""

    def __init__(self, columns: Columns) -> None:
        self.keys: Sequence[str] = LazyStrings(columns["key_bytes"], columns["key_end"])
        self.paths: Sequence[str] = LazyStrings(columns["path_bytes"], columns["path_end"])
        self.labels: NDArray[np.int64] = np.asarray(columns["label"], np.int64)
        self.labels.flags.writeable = False
        self._hash, self._row = columns["hash"], columns["hash_row"]

    def find(self, key: str) -> int:
        """The record with this key.

        Raises:
            KeyError: there is none.
        """
        number = np.uint64(key_hash(key.encode("utf-8", "surrogateescape")))
        place = int(np.searchsorted(self._hash, number))
        while place < len(self._hash) and self._hash[place] == number:
            row = int(self._row[place])
            if self.keys[row] == key:
                return row
            place += 1
        raise KeyError(key)


class Pictures:
    """The part of an index that tells where pictures lie, for many records at once.

    Args:
        columns: the index.
        pictures: for each field's number, whether it holds a picture.
        lengths: of the files.
        checksums: whether the index holds checksums.
    """

    def __init__(
        self, columns: Columns, pictures: Sequence[bool], lengths: Sequence[int], *, checksums: bool = True
    ) -> None:
        self._columns, self._checksums = columns, checksums
        self._pictures = np.array([*pictures, False])  # the last one for numbers that no field has
        self._lengths = np.array([*lengths, 0], np.int64)

    def places(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """A row (record, file, offset, size, crc) for each record; file is -1 for one without a picture, or damaged."""
        start, field, count = self._columns["start"], self._columns["field"], len(self._columns["field"])
        places = np.full((len(indices), COLUMNS), NOWHERE, np.int64)
        places[:, 0] = indices
        blob, last = (np.asarray(start[indices + step], np.int64) for step in (0, 1))
        rows = np.flatnonzero((blob >= 0) & (blob < last) & (last <= count))
        while len(rows):  # the picture is one of the first blobs of a record
            found = self._pictures[np.minimum(field[blob[rows]], len(self._pictures) - 1)]
            self._put(places, rows[found], blob[rows[found]])
            rows = rows[~found]
            blob[rows] += 1
            rows = rows[blob[rows] < last[rows]]
        return places

    def _put(self, places: NDArray[np.int64], rows: NDArray[np.int64], blobs: NDArray[np.int64]) -> None:
        file, offset, size = (np.asarray(self._columns[name][blobs], np.int64) for name in ("file", "offset", "size"))
        known = (file >= 0) & (file < len(self._lengths) - 1)
        room = self._lengths[np.where(known, file, -1)]
        good = known & (offset >= 0) & (size >= 0) & (size <= room) & (offset <= room - size)
        crc = np.asarray(self._columns["crc"][blobs], np.int64) if self._checksums else np.full_like(file, UNCHECKED)
        places[rows[good], 1:] = np.stack([file, offset, size, crc], axis=1)[good]


class Strings(Sequence[str]):
    """A sequence of strings, each of which is made when it is asked for."""

    @abstractmethod
    def made(self, row: int) -> str:
        """The string at `row`, which is not negative and not beyond the end."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self.made(row) for row in range(*index.indices(len(self)))]
        return self.made(checked_row(index, len(self)))

    def __repr__(self) -> str:
        shown = ", ".join(repr(item) for item in self[:3])
        return f"<{len(self)} strings: {shown}{', ...' if len(self) > 3 else ''}>"


class LazyStrings(Strings):
    """Strings that lie end to end in one mapped array."""

    def __init__(self, blob: NDArray[np.generic], ends: NDArray[np.generic]) -> None:
        self._blob, self._ends = memoryview(blob), memoryview(ends)  # type: ignore[arg-type]  # numpy's stubs lag

    def __len__(self) -> int:
        return len(self._ends) - 1

    def made(self, row: int) -> str:
        return str(self._blob[self._ends[row] : self._ends[row + 1]], "utf-8", "surrogateescape")


def checked_row(index: int, count: int) -> int:
    """A non-negative row for a Python index, negative ones counting from the end.

    Raises:
        IndexError: out of range.
    """
    row = index + count if index < 0 else index
    if not 0 <= row < count:
        raise IndexError(f"record {index} of {count}")
    return row
