"""Sink: what a format has to do to be written, and the few steps that the sinks share."""

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
    """Where a sink builds (`new`), the path that the finished data set will have (`target`), and when shards end."""

    new: str
    target: str
    shard_size: int


class Sink(Protocol):
    """Lays records out in one format."""

    def add(self, record: Record) -> Sequence[tuple[int, int]]:
        """Append a record; returns (file number, offset) for each of its fields."""
        ...

    def finish(self, builder: IndexBuilder, manifest: Manifest) -> None:
        """Write index and manifest, the manifest last, and sync; `manifest` has classes and options filled in."""
        ...

    def abort(self) -> None:
        """Release every handle; harmless after `finish`."""
        ...


def finished(manifest: Manifest, builder: IndexBuilder, columns: Columns, files: Sequence[DataFile]) -> Manifest:
    """The manifest of what was written."""
    return dataclasses.replace(
        manifest, count=len(builder), fields=tuple(builder.fields), fingerprint=builder.fingerprint(),
        files=tuple(files), index_sha256=index_hash(columns),
    )  # fmt: skip


def sized(manifest_of: Callable[[int], Manifest], total_of: Callable[[int], int]) -> bytes:
    """The JSON of a manifest that lies inside the file whose length it states.

    The text gets room for the longest length and is padded with spaces, so that the file's length does not depend on
    how many digits it has.
    """
    room = len(manifest_of(2**62).to_json())
    return manifest_of(total_of(room)).to_json().ljust(room)


def write_synced(path: str, pieces: Iterable[bytes]) -> int:
    """Write a file and sync it to disk; returns its length."""
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()
