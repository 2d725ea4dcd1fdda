"""Places: where the encoded pictures of a reader lie, so that others read them without the reader and its index.

In: a reader and numbers of records. Out: a row (record, file, offset, size, crc) for each of them, and a `Source`,
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

# int64, (N, 5): for each picture the record that it belongs to, the file, the offset there, the size in bytes, and the
# CRC-32 (-1 where none is known).
Places = NDArray[np.int64]
# The file of a record whose place cannot be told: the reader, when it is asked for the picture, says why.
NOWHERE = -1
COLUMNS = 5


class Source(Protocol):
    """Reads encoded pictures by their places; picklable wherever the reader is, and usable in threads and forks."""

    def read(self, file: int, offset: int, size: int, scratch: Scratch, /) -> bytes | memoryview:
        """The bytes, maybe in `scratch`: right until that is used again."""


class Placed(ABC):
    """A reader that can tell where its pictures lie. A class, no protocol: wrappers of readers may change pictures.

    Attributes:
        source: reads what `places` tells of.
    """

    @property
    @abstractmethod
    def source(self) -> Source: ...
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
    def places(self, indices: NDArray[np.int64], /) -> Places:
        """A row (record, file, offset, size, crc) for each record; file is -1 where there is no place to be told."""


def tells_places(reader: Reader) -> TypeGuard[Placed]:
    """Whether what a reader gives as a picture is what lies at its place: not where somebody's subclass changes it."""
    return _tells_places(type(reader))


@functools.cache  # asked for every picture
def _tells_places(kind: type) -> bool:
    if not issubclass(kind, Placed):
        return False
    return _as_teller(kind, "image")


def _as_teller(kind: type, name: str) -> bool:
    """Whether a class has this method from the same class as `places`: a subclass has not changed it since."""
    teller = next(each for each in kind.__mro__ if "places" in vars(each))
    return getattr(kind, name) is getattr(teller, name, None)


def source_of(reader: Reader) -> Source:
    """What reads the rows that `places_of` gives."""
    return reader.source if tells_places(reader) else _Records(reader)


def places_of(reader: Reader, indices: NDArray[np.int64]) -> Places:
    """The places of some records' pictures: int64 of shape (N, 5), with rows (record, file, offset, size, crc).

    For a reader that cannot tell, what stands for the place is the record itself.
    """
    if tells_places(reader):
        return reader.places(indices)
    rows = np.zeros((len(indices), COLUMNS), np.int64)
    rows[:, 0] = rows[:, 2] = indices
    rows[:, 4] = UNCHECKED
    return rows


def image_of(reader: Reader, index: int, scratch: Scratch, *, verify: bool) -> bytes | memoryview:
    """The encoded picture of a record, right until `scratch` is used again; its checksum is compared with `verify`.

    Raises:
        FormatError: the record is damaged.
    """
    return (reader.image(index, scratch, verify=verify) if tells_places(reader) else reader.image(index))[1]


def record_of(reader: Reader, index: int) -> Record:
    """A record whose checksums were compared, where the reader knows them.

    Raises:
        FormatError: it is damaged.
    """
    if tells_places(reader) and _as_teller(type(reader), "__getitem__"):
        return reader.record(index, verify=True)
    return reader[index]


class _Records:
    """A reader in the place of files; the offset is the record's number."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, _file: int, offset: int, _size: int, _scratch: Scratch) -> bytes | memoryview:
        return self._reader.image(offset)[1]


class JoinedSources:
    """The sources of several readers; a file's number tells which of them it belongs to."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def read(self, file: int, offset: int, size: int, scratch: Scratch) -> bytes | memoryview:
        number, part = divmod(file, len(self._sources))
        return self._sources[part].read(number, offset, size, scratch)

    def joined(self, part: int, places: Places) -> Places:
        """The places of one part, in the numbering of all."""
        files = places[:, 1]
        places[:, 1] = np.where(files == NOWHERE, NOWHERE, files * len(self._sources) + part)
        return places
