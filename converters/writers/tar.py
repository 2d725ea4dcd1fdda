"""Writes tar shards, or one tar (layout: `fastdata.formats.tar`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

from fastdata.converters.writers.base import SinkOptions, finished, sized, write_synced
from fastdata.formats.index import INDEX_NAME, IndexBuilder, pack
from fastdata.formats.names import local, portable
from fastdata.formats.tar import END, INDEX_MEMBER, footer, header
from fastdata.formats.tar_members import BLOCK, padded
from fastdata.manifest import MANIFEST_NAME, DataFile, Manifest
from fastdata.record import Record

# One system call writes several photos.
_BUFFER = 1 << 20


class TarSink:
    """Appends members, and begins a new shard when the next record would exceed the shard size."""

    def __init__(self, options: SinkOptions) -> None:
        self._single = options.target.lower().endswith(".tar")
        self._new, self._limit = options.new, options.shard_size
        self._stem = portable(os.path.basename(options.target))
        self._file: BinaryIO | None = None
        self._offset = 0
        self._shards: list[DataFile] = []
        if self._single:
            self._begin(self._new)
        else:
            os.mkdir(self._new)
            with open(os.path.join(self._new, INDEX_NAME), "xb"):
                pass  # marks the folder as unfinished until the manifest is there

    def _begin(self, path: str) -> None:
        self._file = open(path, "xb", buffering=_BUFFER)  # noqa: SIM115  # closed by _end or abort
        self._offset = 0

    def add(self, record: Record) -> list[tuple[int, int]]:
        members = [(header(f"{record.key}.{name}", len(blob)), blob) for name, blob in record.fields.items()]
        length = sum(len(head) + padded(len(blob)) for head, blob in members)
        full = self._offset > 0 and self._offset + length + len(END) > self._limit
        if not self._single and (self._file is None or full):
            self._end()
            self._begin(os.path.join(self._new, local(self._name(len(self._shards)))))
        locations = []
        for head, blob in members:
            self._write(head)
            locations.append((len(self._shards), self._offset))
            self._write(blob)
            self._write(bytes(-len(blob) % BLOCK))
        return locations

    def _name(self, number: int) -> str:
        return f"{self._stem}-{number:06d}.tar"

    def _write(self, blob: bytes) -> None:
        assert self._file is not None
        self._file.write(blob)
        self._offset += len(blob)

    def _end(self) -> None:
        """Close the current shard, if there is one, and sync it."""
        if self._file is None:
            return
        self._write(END)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._shards.append(DataFile(self._name(len(self._shards)), self._offset))
        self._file = None

    def finish(self, builder: IndexBuilder, manifest: Manifest) -> None:
        columns = builder.columns()
        index = b"".join(pack(columns))
        if self._single:
            self._write_trailer(index, lambda total: finished(manifest, builder, columns, [DataFile("", total)]))
            self._end()
            return
        self._end()
        write_synced(os.path.join(self._new, INDEX_NAME), [index])
        files = [*self._shards, DataFile(INDEX_NAME, len(index))]
        done = finished(manifest, builder, columns, files)
        write_synced(os.path.join(self._new, MANIFEST_NAME), [done.to_json()])

    def _write_trailer(self, index: bytes, manifest_of: Callable[[int], Manifest]) -> None:
        start = self._offset + BLOCK  # after the member's header, one block because its name is short ASCII

        def size(room: int) -> int:
            return padded(len(index) + room) + BLOCK

        blob = sized(manifest_of, lambda room: start + size(room) + len(END))
        middle, end = start + len(index), start + len(index) + len(blob)
        self._write(header(INDEX_MEMBER, size(len(blob))))
        for piece in (index, blob, bytes(-end % BLOCK)):
            self._write(piece)
        self._write(footer(start, middle, end))

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
