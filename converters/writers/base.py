"""Sink: the protocol that each format's writer implements, and the steps that they share."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastdata.formats.index import Columns, IndexBuilder, index_hash
from fastdata.manifest import DataFile, Manifest
from fastdata.record import Record


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a sink builds (`new`), the path of the finished data set (`target`), and the maximum size of a shard."""

    new: str
    target: str
    shard_size: int


class Sink(Protocol):
    """Lays records out in one format."""

    def add(self, record: Record) -> Sequence[tuple[int, int]]:
        """Append a record; return (file number, offset) for each of its fields."""
        ...

    def finish(self, builder: IndexBuilder, manifest: Manifest) -> None:
        """Write the index, then the manifest, and sync. `manifest` holds classes and options."""
        ...

    def abort(self) -> None:
        """Release all handles. May be called after `finish`."""
        ...


def finished(manifest: Manifest, builder: IndexBuilder, columns: Columns, files: Sequence[DataFile]) -> Manifest:
    """The manifest, with the count, fields, fingerprint, files and index hash filled in."""
    return dataclasses.replace(
        manifest, count=len(builder), fields=tuple(builder.fields), fingerprint=builder.fingerprint(),
        files=tuple(files), index_sha256=index_hash(columns),
    )  # fmt: skip


def sized(manifest_of: Callable[[int], Manifest], total_of: Callable[[int], int]) -> bytes:
    """The JSON of a manifest that lies inside the file whose length it states.

    The text is padded with spaces to the room for the longest length, so the file's length does not depend on its
    number of digits.
    """
    room = len(manifest_of(2**62).to_json())
    return manifest_of(total_of(room)).to_json().ljust(room)


def write_synced(path: str, pieces: Iterable[bytes]) -> int:
    """Write a file and sync it to disk; return its length."""
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()
