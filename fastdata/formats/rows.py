"""Rows: keys, source paths and labels from the columns of an index, and the look-up of a record by its key.

Strings are created on access; nothing is copied.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.formats.index import Columns, key_hash
from fastdata.record import MAX_NAME_BYTES, MAX_PATH_BYTES

# How many rows are compared at a time: the temporary arrays stay in the processor's caches.
_AT_ONCE = 1 << 17


def check_shape(columns: Columns, count: int, fields: int, where: str) -> None:
    """Refuse an index whose columns do not fit together. Reads a few pages only; `verify` checks every row.

    Raises:
        FormatError: it names the file and what does not fit.
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


def check_rows(columns: Columns, fields: int, classes: int, lengths: Sequence[int], where: str) -> None:
    """Refuse an index with impossible rows: a column that must increase does not, or points at what does not exist.

    So reading every record once costs no more than reading every file, and the names of a record are short. Takes some
    15 ns for each record; checks that need the data are left to `verify`.

    Args:
        columns: columns that passed `check_shape`.
        fields: the number of fields; a record has each at most once.
        classes: the number of classes; 0 if labels may have any value.
        lengths: the lengths of the data files.
        where: the data set, for messages.

    Raises:
        FormatError: it names the column and what is wrong with it.
    """
    count, size, label = len(columns["label"]), columns["size"], columns["label"]
    steps = {"key_end": (1, MAX_NAME_BYTES), "path_end": (0, MAX_PATH_BYTES), "start": (0, fields)}
    found = [
        f"{name} does not increase as it should" for name, step in steps.items() if not _steps(columns[name], *step)
    ]
    found += [f"{name} does not increase" for name in ("hash", "file") if not _rises(columns[name])]
    # Otherwise blobs overlap, and reading every record could read a file as often as there are records.
    if len(size) and (size.min() < 0 or size.sum(dtype=np.float64) > sum(lengths)):
        found.append("size adds up to more than the data")
    if not _within(columns["file"], 0, len(lengths)):
        found.append("file points at a file that does not exist")
    if not _within(columns["hash_row"], 0, count) or not _each_once(columns["hash_row"]):
        found.append("hash_row does not name each record once")
    if not _within(columns["key_bytes"], ord(" "), 256):
        found.append("key_bytes holds control characters")
    if classes and not _within(label, -1, classes):
        found.append(f"label is not one of the {classes} classes")
    if found:
        raise FormatError(f"{where}: damaged index (column {', '.join(found)}); convert the data again")


def _parts(column: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """A column in pieces; neighbours have one value in common."""
    return (column[first : first + _AT_ONCE + 1] for first in range(0, len(column) - 1, _AT_ONCE))


def _rises(column: NDArray[Any]) -> bool:
    return all(bool((part[:-1] <= part[1:]).all()) for part in _parts(column))


def _steps(column: NDArray[Any], least: int, most: int) -> bool:
    """Whether a column that begins with 0 increases by `least` to `most` in each row, without wrapping around."""
    return all(_within(np.diff(part), least, most + 1) for part in _parts(column))


def _within(column: NDArray[Any], first: int, stop: int) -> bool:
    return not len(column) or (int(column.min()) >= first and int(column.max()) < stop)


def _each_once(numbers: NDArray[Any]) -> bool:
    seen = np.zeros(len(numbers), bool)
    seen[numbers] = True
    return bool(seen.all())


class Rows:
    """The part of an index that describes records: keys, source paths, labels, and the look-up of a record by its key.

    Args:
        columns: the index.
        where: the data set, for messages.
        check: called before the columns are read; raises if they no longer exist.
    """

    def __init__(self, columns: Columns, where: str = "", check: Callable[[], None] | None = None) -> None:
        self._where, self._check = where, check
        self.keys: Sequence[str] = LazyStrings(columns["key_bytes"], columns["key_end"], check)
        self.paths: Sequence[str] = LazyStrings(columns["path_bytes"], columns["path_end"], check)
        # Callers may read the labels at any time, so they are copied if reading them later could crash.
        self.labels: NDArray[np.int64] = (np.asarray if check is None else np.array)(columns["label"], np.int64)
        self.labels.flags.writeable = False
        self._hash, self._row = columns["hash"], columns["hash_row"]

    def find(self, key: str) -> int:
        """The record with this key.

        Raises:
            FormatError: the index is damaged at the position of its hash.
            KeyError: there is none.
        """
        if self._check is not None:
            self._check()
        try:
            number = np.uint64(key_hash(_raw(key)))
        except UnicodeEncodeError:  # not a key that any data set can hold
            raise KeyError(key) from None
        first = slot = int(np.searchsorted(self._hash, number))
        while slot < len(self._hash) and self._hash[slot] == number:
            row = self._hashed(slot)
            if self.keys[row] == key:
                return row
            slot += 1
        # A hash that was changed, in a column that still increases, lies beside the slot where it was searched for.
        for beside in {max(first - 1, 0), min(first, len(self._hash) - 1)} if len(self._hash) else ():
            self._hashed(beside)
        raise KeyError(key)

    def _hashed(self, slot: int) -> int:
        """The record that a slot in the table of hashes belongs to."""
        row = int(self._row[slot])
        if not 0 <= row < len(self.keys) or key_hash(_raw(self.keys[row])) != int(self._hash[slot]):
            raise FormatError(
                f"{self._where}: damaged index: the hashes by which keys are found are not those of the keys; run "
                "`fastdata verify`, or convert the data again"
            )
        return row


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def rows_in(columns: Columns, file: int) -> range:
    """The records whose blobs lie in a file."""
    first, last = np.searchsorted(columns["file"], [file, file + 1])
    start, stop = np.searchsorted(columns["start"][:-1], [first, last])
    return range(int(start), int(stop))


class Strings(Sequence[str]):
    """A sequence of strings, each of which is created on access."""

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
    """Strings that lie end to end in one array. `check` is called before each access."""

    def __init__(
        self, blob: NDArray[np.generic], ends: NDArray[np.generic], check: Callable[[], None] | None = None
    ) -> None:
        self._blob, self._ends = memoryview(blob), memoryview(ends)  # type: ignore[arg-type]  # numpy's stubs lag
        self._check = check

    def __len__(self) -> int:
        return len(self._ends) - 1

    def made(self, row: int) -> str:
        if self._check is not None:
            self._check()
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
