"""Locations: where the encoded images of a reader lie, so that they can be read without the reader and its index.

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

# int64, (N, 5): for each image its record, the file, the offset there, the size in bytes, and the CRC-32 (-1 where
# none is known).
Locations = NDArray[np.int64]
# The file of a record whose image cannot be located: the reader, when it is asked for the image, says why.
NO_FILE = -1
COLUMNS = 5


class BlobSource(Protocol):
    """Reads encoded images by their locations; picklable wherever the reader is, and usable in threads and forks."""

    def read(self, file: int, offset: int, size: int, scratch: Scratch, /) -> bytes | memoryview:
        """The bytes, maybe in `scratch`: right until that is used again."""


class LocatedReader(ABC):
    """A reader that knows where its images lie. A class, not a protocol: wrappers of readers may change the images.

    Attributes:
        blob_source: reads what `locations` gives.
    """

    @property
    @abstractmethod
    def blob_source(self) -> BlobSource: ...
    @abstractmethod
    def image(
        self, index: int, scratch: Scratch | None = None, *, verify: bool | None = None
    ) -> tuple[str, bytes | memoryview]:
        """As a Reader's; with `scratch` maybe a view of that: nothing of the file stays in the process.

        `verify`: compare checksums; None does so where the data set was opened with it.
        """

    @abstractmethod
    def record(self, index: int, *, verify: bool) -> Record:
        """As `reader[index]`; with `verify`, the checksums of all its fields are compared."""

    @abstractmethod
    def locations(self, indices: NDArray[np.int64], /) -> Locations:
        """A row (record, file, offset, size, crc) for each record; file is -1 where no image can be located."""


def has_locations(reader: Reader) -> TypeGuard[LocatedReader]:
    """Whether `image(i)` returns the bytes that lie at the location, not overridden by a subclass."""
    return _has_locations(type(reader))


@functools.cache  # asked for every image
def _has_locations(kind: type) -> bool:
    if not issubclass(kind, LocatedReader):
        return False
    return _defined_with_locations(kind, "image")


def _defined_with_locations(kind: type, name: str) -> bool:
    """Whether a class has this method from the same class as `locations`: no subclass has overridden it since."""
    owner = next(each for each in kind.__mro__ if "locations" in vars(each))
    return getattr(kind, name) is getattr(owner, name, None)


def blob_source_of(reader: Reader) -> BlobSource:
    """What reads the rows that `locations_of` gives."""
    return reader.blob_source if has_locations(reader) else _ReaderSource(reader)


def locations_of(reader: Reader, indices: NDArray[np.int64]) -> Locations:
    """The locations of some records' images: int64 of shape (N, 5), with rows (record, file, offset, size, crc).

    For a reader without locations, the record number stands for the offset.
    """
    if has_locations(reader):
        return reader.locations(indices)
    rows = np.zeros((len(indices), COLUMNS), np.int64)
    rows[:, 0] = rows[:, 2] = indices
    rows[:, 4] = UNCHECKED
    return rows


def image_of(reader: Reader, index: int, scratch: Scratch, *, verify: bool) -> bytes | memoryview:
    """The encoded image of a record, right until `scratch` is used again; its checksum is compared with `verify`.

    Raises:
        FormatError: the record is damaged.
    """
    return (reader.image(index, scratch, verify=verify) if has_locations(reader) else reader.image(index))[1]


def record_of(reader: Reader, index: int) -> Record:
    """A record whose checksums were compared, where the reader knows them.

    Raises:
        FormatError: it is damaged.
    """
    if has_locations(reader) and _defined_with_locations(type(reader), "__getitem__"):
        return reader.record(index, verify=True)
    return reader[index]


class _ReaderSource:
    """A reader used as a source; the offset is the record's number."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, _file: int, offset: int, _size: int, _scratch: Scratch) -> bytes | memoryview:
        return self._reader.image(offset)[1]


class JoinedBlobSources:
    """The sources of several readers; a file's number names the one that it belongs to."""

    def __init__(self, sources: Sequence[BlobSource]) -> None:
        self._sources = sources

    def read(self, file: int, offset: int, size: int, scratch: Scratch) -> bytes | memoryview:
        number, part = divmod(file, len(self._sources))
        return self._sources[part].read(number, offset, size, scratch)

    def joined(self, part: int, locations: Locations) -> Locations:
        """The locations of one part, in the numbering of all."""
        files = locations[:, 1]
        locations[:, 1] = np.where(files == NO_FILE, NO_FILE, files * len(self._sources) + part)
        return locations
