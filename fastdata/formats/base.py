"""The Reader protocol, which every format implements, and what all readers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastdata.checks import flag, integer, refuse
from fastdata.codec.info import MAX_PIXELS, most_bytes
from fastdata.errors import FastdataError, FormatError, LoadError, raise_resource_error
from fastdata.manifest import Manifest
from fastdata.record import Record

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a data set is read. These come from the caller, never from the data, which are not trusted.

    Attributes:
        image_field: the field that holds the image, in foreign data; None finds it by its name.
        label_field: the field that holds the label, in foreign data; None finds it by its name.
        max_pixels: larger images are refused before memory is allocated. A manifest may lower it, never raise it.
        verify: compare the CRC-32 of every field that is read with the one in the index.

    Raises:
        OptionError: a value of the wrong type, or out of range.
    """

    image_field: str | None = None
    label_field: str | None = None
    max_pixels: int = MAX_PIXELS
    verify: bool = False

    def __post_init__(self) -> None:
        for name in ("image_field", "label_field"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                refuse(name, "the name of a field, such as 'jpg' or 'cls', or None", value)
        object.__setattr__(self, "max_pixels", integer("max_pixels", self.max_pixels, 1))
        object.__setattr__(self, "verify", flag("verify", self.verify))


READ_OPTIONS = ReadOptions()


@runtime_checkable
class Reader(Protocol):
    """Random access to the records of a data set.

    `len(reader)` is the number of records; `reader[i]` is a `Record` whose fields are copied out as bytes, negative
    indices count from the end, and an index out of range is an IndexError. Safe in threads and under fork, forkserver
    and spawn; picklable; a context manager. A record that is damaged or cannot be read raises FormatError.

    Attributes:
        path: the data set, absolute.
        manifest: its description of itself.
        classes: class names by number; empty where there are none.
        keys: the key of every record, each created on access.
        paths: the source path of every record, likewise; "" where none is known.
        labels: the class number of every record, an int64 array of shape (N,), read-only; -1 without one.
    """

    @property
    def path(self) -> str: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def labels(self) -> NDArray[np.int64]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Record: ...
    def find(self, key: str) -> int:
        """The index of the record with this key; KeyError where there is none."""

    def image(self, index: int) -> tuple[str, bytes | memoryview]:
        """The name of the image's field and its bytes: these may be a read-only view, valid while it is held."""

    def size(self, index: int) -> int:
        """The number of bytes of all fields together."""

    def image_size(self, index: int) -> int:
        """The number of bytes of the encoded image."""

    def verify(self) -> Iterator[tuple[str, str]]:
        """Check index and checksums against the data; yields (key or file, what is wrong)."""

    def close(self) -> None:
        """Close the files; views that are still held stay valid."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def allowed_pixels(reader: Reader, max_pixels: int | None = None) -> int:
    """The most pixels that an image may have: `max_pixels` if given, else what the reader was opened with."""
    options = getattr(reader, "options", READ_OPTIONS)
    if max_pixels is not None:
        options = ReadOptions(max_pixels=max_pixels)
    return options.max_pixels if isinstance(options, ReadOptions) else MAX_PIXELS


def record_name(reader: Reader, index: int) -> str:
    """`PATH: record 'KEY'`, as errors name a record; PATH is its own data set if several are read as one."""
    path_of = getattr(reader, "path_of", None)
    return f"{reader.path if path_of is None else path_of(index)}: record {reader.keys[index]!r}"


def raise_named(reader: Reader, index: int, error: Exception) -> None:
    """Raise a LoadError that names the record for any error of a reader, also of a reader class of the user's.

    Return for errors of ours, and for the IndexError of an index out of range: any other IndexError would end a loop
    silently.
    """
    if isinstance(error, IndexError) and not -len(reader) <= index < len(reader):
        return
    raise_resource_error(error, record_name(reader, index))
    if not isinstance(error, FastdataError):
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise LoadError(f"{record_name(reader, index)}: {message}") from error


def check_size(reader: Reader, index: int, size: int) -> None:
    """Refuse to read an image whose bytes are more than the caller's limit allows.

    Raises:
        FormatError: naming the record.
    """
    most = allowed_pixels(reader)
    if size > most_bytes(most):
        raise FormatError(
            f"{record_name(reader, index)}: its {size:,} bytes are more than an image of {most:,} pixels takes "
            "(max_pixels); it is damaged or not an image"
        )


class Closing:
    """A context manager that calls `close` at the end."""

    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reopened(reopen: Callable[[str], Any], path: str, identity: str) -> Any:
    """Unpickle a reader: open its path again, and refuse a data set that is no longer the same."""
    reader = reopen(path)
    if reader.identity() != identity:
        reader.close()
        raise FormatError(f"{path}: the data set was replaced since this reader was pickled; open it again")
    return reader
