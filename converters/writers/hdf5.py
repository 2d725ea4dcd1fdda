"""Writes an HDF5 file (layout: `fastdata.formats.hdf5`).

The payload is appended to the final file from byte 65,536 on, so it need not be buffered, nor its size be known. At the
end h5py writes a twin with the same data sets, whose payload is a hole of the right size and whose manifest is empty.
Its bytes around the payload are copied into the file; the first 64 kB, with HDF5's signature, last.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

import h5py
import numpy as np

from fastdata.converters.writers.base import SinkOptions, finished, sized
from fastdata.errors import ConvertError
from fastdata.formats.hdf5 import INDEX, MANIFEST, PAYLOAD, PAYLOAD_AT, SMALLEST
from fastdata.formats.index import Columns, IndexBuilder
from fastdata.manifest import DataFile, Manifest
from fastdata.record import Record

_BUFFER = 1 << 20
# A superblock of version 3 with checksummed metadata: HDF5 itself refuses a flipped bit or a file that was not closed.
# The bounds are fixed, because the newest ones would depend on the installed HDF5.
_LIBVER = ("v110", "v110")
_COPY = 1 << 24


class Hdf5Sink:
    """Appends blobs to the payload, and writes the data sets around it at the end."""

    def __init__(self, options: SinkOptions) -> None:
        self._path, self._twin = options.new, options.new + "-twin"
        self._file = open(self._path, "xb", buffering=_BUFFER)  # noqa: SIM115  # closed by finish or abort
        self._file.seek(PAYLOAD_AT)
        self._end = PAYLOAD_AT

    def add(self, record: Record) -> list[tuple[int, int]]:
        locations = []
        for blob in record.fields.values():
            locations.append((0, self._end))
            self._file.write(blob)
            self._end += len(blob)
        return locations

    def finish(self, builder: IndexBuilder, manifest: Manifest) -> None:
        if self._end < PAYLOAD_AT + SMALLEST:
            self._file.write(bytes(PAYLOAD_AT + SMALLEST - self._end))
            self._end = PAYLOAD_AT + SMALLEST
        columns = builder.columns()
        manifest_at = list[int]()

        def lay_out(room: int) -> int:
            total, offset = self._lay_out(columns, room)
            manifest_at.append(offset)
            return total

        with _system_errors():
            text = sized(lambda total: finished(manifest, builder, columns, [DataFile("", total)]), lay_out)
        self._splice(manifest_at[-1], text)
        os.unlink(self._twin)

    def _lay_out(self, columns: Columns, room: int) -> tuple[int, int]:
        """Write the twin, with `room` zeros for the manifest; return its length and the manifest's offset."""
        self._file.flush()  # a full disk fails here, with the system's own message
        large = {"alignment_threshold": SMALLEST, "alignment_interval": PAYLOAD_AT}
        with h5py.File(self._twin, "w", libver=_LIBVER, locking=False, **large) as file:
            if _hole(file, PAYLOAD, self._end - PAYLOAD_AT) != PAYLOAD_AT:
                raise ConvertError("HDF5 did not put the payload at its offset; please report this")
        small = {"alignment_threshold": 1, "alignment_interval": 64}  # a cache line, for arrays that may be mapped
        with h5py.File(self._twin, "r+", libver=_LIBVER, locking=False, **small) as file:
            for name, column in columns.items():
                file.create_dataset(f"{INDEX}/{name}", data=column, track_times=False)
            data = file.create_dataset(MANIFEST, data=np.zeros(room, np.uint8), track_times=False)
            offset: int = data.id.get_offset()
        return os.stat(self._twin).st_size, offset

    def _splice(self, manifest_at: int, manifest: bytes) -> None:
        """Copy the twin's bytes around the payload, and write the manifest; the first 64 kB come last."""
        with open(self._twin, "rb") as twin:
            twin.seek(self._end)
            while piece := twin.read(_COPY):
                self._file.write(piece)
            self._file.seek(manifest_at)
            self._file.write(manifest)
            self._sync()
            twin.seek(0)
            self._file.seek(0)
            self._file.write(twin.read(PAYLOAD_AT))
        self._sync()
        self._file.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def abort(self) -> None:
        self._file.close()


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """Raise h5py's errors of failed system calls as OSError; h5py states the error number in the message only."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _hole(file: h5py.File, name: str, size: int) -> int | None:
    """Make a data set of `size` bytes whose space is allocated but not written; return its offset."""
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    options.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    options.set_obj_track_times(False)
    space = h5py.h5s.create_simple((size,))
    data = h5py.h5d.create(file.id, name.encode("ascii"), h5py.h5t.STD_U8LE, space, options)
    offset: int | None = data.get_offset()
    return offset
