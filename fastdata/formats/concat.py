"""Readers that wrap readers: several data sets one after the other, and a range of records of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, Closing, Reader, ReadOptions
from fastdata.formats.files import Scratch
from fastdata.formats.locations import (
    COLUMNS,
    BlobSource,
    JoinedBlobSources,
    LocatedReader,
    Locations,
    blob_of,
    blob_source_of,
    has_locations,
    joined_locations,
    locations_of,
    record_of,
)
from fastdata.formats.packed import PackedReader
from fastdata.formats.rows import Strings, checked_row
from fastdata.formats.verify import DATA_SET, Problem, Verified, problems_of
from fastdata.manifest import Manifest
from fastdata.record import Record


class SliceReader(Closing, LocatedReader, Verified):
    """The records `start` to `stop - 1` of a reader, numbered from 0."""

    def __init__(self, reader: PackedReader, start: int, stop: int) -> None:
        self._reader, self._start, self._stop = reader, start, stop
        self.path, self.options = reader.path, reader.options
        self.manifest: Manifest = dataclasses.replace(
            reader.manifest, count=stop - start, fingerprint=f"{reader.manifest.fingerprint}[{start}:{stop}]"
        )
        self.classes = reader.classes
        self.labels: NDArray[np.int64] = reader.labels[start:stop]
        self.keys: Sequence[str] = Joined([(reader.keys, start, stop)])
        self.paths: Sequence[str] = Joined([(reader.paths, start, stop)])

    def _row(self, index: int) -> int:
        return self._start + checked_row(index, len(self))

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, index: int) -> Record:
        return self._reader[self._row(index)]

    def record(self, index: int, *, verify: bool) -> Record:
        return self._reader.record(self._row(index), verify=verify)

    def find(self, key: str) -> int:
        row = self._reader.find(key) - self._start
        if not 0 <= row < len(self):
            raise KeyError(key)
        return row

    def image(
        self, index: int, scratch: Scratch | None = None, *, verify: bool | None = None
    ) -> tuple[str, bytes | memoryview]:
        return self._reader.image(self._row(index), scratch, verify=verify)

    def blob(self, index: int, field: str, *, verify: bool) -> bytes | None:
        return self._reader.blob(self._row(index), field, verify=verify)

    def blob_source(self, field: str | None = None) -> BlobSource:
        return blob_source_of(self._reader, field)

    def locations(self, indices: NDArray[np.int64], field: str | None = None) -> Locations:
        locations = locations_of(self._reader, indices + self._start, field)
        locations[:, 0] = indices
        return locations

    def size(self, index: int) -> int:
        return self._reader.size(self._row(index))

    def image_size(self, index: int) -> int:
        return self._reader.image_size(self._row(index))

    def problems(self) -> Iterator[Problem]:
        for found in self._reader.problems_in(range(self._start, self._stop)):
            yield found if found.row == DATA_SET else found._replace(row=found.row - self._start)

    def close(self) -> None:
        self._reader.close()

    def __reduce__(self) -> tuple[Callable[..., SliceReader], tuple[PackedReader, int, int]]:
        return SliceReader, (self._reader, self._start, self._stop)


class ConcatReader(Closing, LocatedReader, Verified):
    """Several readers, one after the other. Their class tables, if any, must agree."""

    def __init__(self, parts: Sequence[Reader]) -> None:
        tables = {part.classes for part in parts if part.classes}
        if len(tables) > 1:
            raise FormatError(
                f"{parts[0].path} and {parts[-1].path} have different class tables, so the same number means different "
                "things; convert them together"
            )
        joined = _joined_options(parts)
        self._parts = list(parts)
        self.options: ReadOptions = getattr(parts[0], "options", READ_OPTIONS)
        self._ends = np.cumsum([len(part) for part in parts])
        self.path = parts[0].path
        self.classes = next(iter(tables), ())
        self.labels: NDArray[np.int64] = np.concatenate([part.labels for part in parts])
        self.labels.flags.writeable = False
        self.keys: Sequence[str] = Joined([(part.keys, 0, len(part)) for part in parts])
        self.paths: Sequence[str] = Joined([(part.paths, 0, len(part)) for part in parts])
        fields = dict.fromkeys(name for part in parts for name in part.manifest.fields)
        self.manifest = dataclasses.replace(
            parts[0].manifest, count=int(self._ends[-1]), fields=tuple(fields), classes=self.classes,
            fingerprint=_joined_fingerprint(parts), files=(), index_sha256="", options=joined,
        )  # fmt: skip

    def _part_of(self, index: int) -> tuple[Reader, int]:
        row = checked_row(index, len(self))
        part = int(np.searchsorted(self._ends, row, side="right"))
        return self._parts[part], row - (int(self._ends[part - 1]) if part else 0)

    def path_of(self, index: int) -> str:
        """The data set that a record belongs to."""
        return self._part_of(index)[0].path

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Record:
        part, row = self._part_of(index)
        return part[row]

    def record(self, index: int, *, verify: bool) -> Record:
        part, row = self._part_of(index)
        return record_of(part, row) if verify else part[row]

    def find(self, key: str) -> int:
        first = 0
        for part in self._parts:
            try:
                return first + part.find(key)
            except KeyError:
                first += len(part)
        raise KeyError(key)

    def image(
        self, index: int, scratch: Scratch | None = None, *, verify: bool | None = None
    ) -> tuple[str, bytes | memoryview]:
        part, row = self._part_of(index)
        return part.image(row, scratch, verify=verify) if has_locations(part) else part.image(row)

    def blob(self, index: int, field: str, *, verify: bool) -> bytes | None:
        part, row = self._part_of(index)
        return blob_of(part, row, field, verify=verify)

    def blob_source(self, field: str | None = None) -> BlobSource:
        return JoinedBlobSources([blob_source_of(part, field) for part in self._parts])

    def locations(self, indices: NDArray[np.int64], field: str | None = None) -> Locations:
        locations = np.empty((len(indices), COLUMNS), np.int64)
        parts = np.searchsorted(self._ends, indices, side="right")
        for part in np.unique(parts).tolist():
            rows, first = np.flatnonzero(parts == part), int(self._ends[part - 1]) if part else 0
            found = locations_of(self._parts[part], indices[rows] - first, field)
            locations[rows] = joined_locations(found, part, len(self._parts))
        locations[:, 0] = indices
        return locations

    def size(self, index: int) -> int:
        part, row = self._part_of(index)
        return part.size(row)

    def image_size(self, index: int) -> int:
        part, row = self._part_of(index)
        return part.image_size(row)

    def problems(self) -> Iterator[Problem]:
        first, reported = 0, set[Problem]()  # each shard of a folder reports the problems of the whole folder
        for part in self._parts:
            for found in problems_of(part):
                if found.row != DATA_SET:
                    yield found._replace(row=first + found.row)
                elif found not in reported:
                    reported.add(found)
                    yield found
            first += len(part)

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def __reduce__(self) -> tuple[Callable[..., ConcatReader], tuple[list[Reader]]]:
        return ConcatReader, (self._parts,)


def _joined_options(parts: Sequence[Reader]) -> dict[str, Any]:
    """The options of the first part; those that affect decoding must agree."""
    first, *others = (part.manifest.options for part in parts)
    for name, usual in (("alpha", "white"), ("keep_damaged", False)):
        for part, options in zip(parts[1:], others, strict=True):
            here, there = first.get(name, usual), options.get(name, usual)
            if here != there:
                raise FormatError(
                    f"{parts[0].path} was converted with {name} {here!r}, {part.path} with {there!r}, so their "
                    "images are decoded differently; convert them with the same options"
                )
    # The largest, which is compared with the reader's own limit; none if one of them states none.
    limits = [options.get("max_pixels") for options in (first, *others)]  # may be anything in foreign data
    known = [one for one in limits if type(one) is int and one > 0]
    rest = {name: value for name, value in first.items() if name != "max_pixels"}
    return {**rest, "max_pixels": max(known)} if len(known) == len(limits) else rest


def _joined_fingerprint(parts: Sequence[Reader]) -> str:
    """The fingerprint of all parts; "" if any part is foreign, since changes of it cannot be detected."""
    prints = [part.manifest.fingerprint for part in parts]
    return "+".join(prints) if all(prints) else ""


class Joined(Strings):
    """Parts of string sequences, one after the other, without copying them."""

    def __init__(self, parts: Sequence[tuple[Sequence[str], int, int]]) -> None:
        self._parts = parts
        self._ends = np.cumsum([stop - start for _, start, stop in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def made(self, row: int) -> str:
        part = int(np.searchsorted(self._ends, row, side="right"))
        strings, start, _ = self._parts[part]
        return strings[start + row - (int(self._ends[part - 1]) if part else 0)]


def check_index(reader: Reader) -> None:
    """Compare the index with its hash: it holds labels, keys and locations, which have no checksums of their own.

    Raises:
        FormatError: it has changed since it was written.
    """
    if isinstance(reader, ConcatReader):
        for part in reader._parts:
            check_index(part)
    elif isinstance(reader, SliceReader):
        check_index(reader._reader)
    elif not isinstance(reader, PackedReader) or reader.checksums is None:
        return  # the index was built with the reader: of foreign data, or of a copy in memory
    elif reader.index_hash() != reader.manifest.index_sha256:
        raise FormatError(
            f"{reader.path}: the index has changed since it was written; copy the data set again from a whole one, or "
            "convert the data again (`fastdata verify` shows what is damaged)"
        )
