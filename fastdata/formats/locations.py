"""Locations: file, offset and size of images and other fields, to read them without the reader and its index.

In: a reader and record numbers. Out: a row (record, file, offset, size, crc) for each of them, and a `BlobSource`,
which reads such rows and is small enough to be sent to any number of processes.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.checksum import UNCHECKED
from fastdata.formats.files import Scratch

if TYPE_CHECKING:
    from typing import TypeGuard

    from fastdata.formats.base import Reader
    from fastdata.record import Record

# int64, (N, 5): for each blob its record, the file, the offset there, the size in bytes, and the CRC-32 (-1 if
# unknown).
Locations = NDArray[np.int64]
# The file of a blob that cannot be located; asking the reader for it raises the reason.
NO_FILE = -1
# The file of a field that the record does not have.
ABSENT = -2
COLUMNS = 5


class FieldAbsent(LookupError):
    """A record does not have the field; raised if this is known only after reading the record."""


class BlobSource(Protocol):
    """Reads blobs by their locations; picklable wherever the reader is, and usable in threads and forks."""

    def read(self, file: int, offset: int, size: int, scratch: Scratch, /) -> bytes | memoryview:
        """Return the bytes, which may be in `scratch` and are then valid until it is used again.

        Raises:
            FieldAbsent: the record does not have the field.
        """


class LocatedReader(ABC):
    """A reader that can locate its blobs. A class, not a protocol: a reader that wraps one may change what is read."""

    @abstractmethod
    def blob_source(self, field: str | None = None, /) -> BlobSource:
        """Return what reads the rows from `locations` for this field, without the index."""

    @abstractmethod
    def image(
        self, index: int, scratch: Scratch | None = None, *, verify: bool | None = None
    ) -> tuple[str, bytes | memoryview]:
        """As a Reader's; with `scratch`, the bytes may be a view of that, and no other memory is used.

        `verify`: compare checksums; None does so if the data set was opened with it.
        """

    @abstractmethod
    def record(self, index: int, *, verify: bool) -> Record:
        """As `reader[index]`; with `verify`, the checksums of all its fields are compared."""

    @abstractmethod
    def blob(self, index: int, field: str, *, verify: bool) -> bytes | None:
        """A record's field by its name, None if the record lacks it; with `verify`, its checksum is compared."""

    @abstractmethod
    def locations(self, indices: NDArray[np.int64], field: str | None = None, /) -> Locations:
        """A row (record, file, offset, size, crc) for each record's image, or for the field with this name.

        The file is `NO_FILE` if the blob cannot be located, and `ABSENT` if the record has no such field.
        """


def has_locations(reader: Reader, field: str | None = None) -> TypeGuard[LocatedReader]:
    """Whether the reader returns the bytes at the location, unchanged by a subclass, as the image or as the field."""
    return _has_locations(type(reader), "image" if field is None else "__getitem__")


@functools.cache  # called for every image
def _has_locations(kind: type, method: str) -> bool:
    return issubclass(kind, LocatedReader) and _defined_with_locations(kind, method)


def _defined_with_locations(kind: type, name: str) -> bool:
    """Whether a class has this method from the same class as `locations`: no subclass overrides only the method."""
    owner = next(each for each in kind.__mro__ if "locations" in vars(each))
    return getattr(kind, name) is getattr(owner, name, None)


def blob_source_of(reader: Reader, field: str | None = None) -> BlobSource:
    """Return what reads the rows from `locations_of` for the image, or for the field with this name."""
    return reader.blob_source(field) if has_locations(reader, field) else ReaderSource(reader, field)


def locations_of(reader: Reader, indices: NDArray[np.int64], field: str | None = None) -> Locations:
    """The locations of some records' images, or of the field with this name: see `LocatedReader.locations`.

    For a reader without locations, the record number stands for the offset.
    """
    return reader.locations(indices, field) if has_locations(reader, field) else record_rows(indices)


def record_rows(indices: NDArray[np.int64]) -> Locations:
    """The rows for a `ReaderSource`: the record number stands for the offset."""
    rows = np.zeros((len(indices), COLUMNS), np.int64)
    rows[:, 0] = rows[:, 2] = indices
    rows[:, 4] = UNCHECKED
    return rows


def image_of(reader: Reader, index: int, scratch: Scratch, *, verify: bool) -> bytes | memoryview:
    """The encoded image of a record, valid until `scratch` is used again; with `verify`, its checksum is compared.

    Raises:
        FormatError: the record is damaged.
    """
    return (reader.image(index, scratch, verify=verify) if has_locations(reader) else reader.image(index))[1]


def blob_of(reader: Reader, index: int, field: str, *, verify: bool) -> bytes | None:
    """A record's field by its name, None if the record lacks it; with `verify`, its checksum is compared.

    Raises:
        FormatError: the record is damaged.
    """
    if has_locations(reader, field):
        return reader.blob(index, field, verify=verify)
    return reader[index].fields.get(field)


def record_of(reader: Reader, index: int) -> Record:
    """A record whose checksums were compared, if the reader has any.

    Raises:
        FormatError: it is damaged.
    """
    if has_locations(reader, ""):  # of any field
        return reader.record(index, verify=True)
    return reader[index]


class ReaderSource:
    """A reader used as a source of its images, or of the field with this name; the offset is the record's number."""

    def __init__(self, reader: Reader, field: str | None) -> None:
        self._reader, self._field = reader, field

    def read(self, _file: int, offset: int, _size: int, _scratch: Scratch) -> bytes | memoryview:
        if self._field is None:
            return self._reader.image(offset)[1]
        blob = blob_of(self._reader, offset, self._field, verify=False)
        if blob is None:
            raise FieldAbsent(self._field)
        return blob


class JoinedBlobSources:
    """The sources of several readers; a file's number tells which of them it belongs to."""

    def __init__(self, sources: Sequence[BlobSource]) -> None:
        self._sources = sources

    def read(self, file: int, offset: int, size: int, scratch: Scratch) -> bytes | memoryview:
        number, part = divmod(file, len(self._sources))
        return self._sources[part].read(number, offset, size, scratch)


def joined_locations(locations: Locations, part: int, parts: int) -> Locations:
    """Renumber the files of one part of several, as `JoinedBlobSources` of all parts expects them."""
    files = locations[:, 1]
    locations[:, 1] = np.where(files < 0, files, files * parts + part)
    return locations
