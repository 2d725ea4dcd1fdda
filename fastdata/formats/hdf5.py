"""HDF5: one file `X.h5`, read by mapping the places where its data sets lie.

    /payload         uint8, contiguous, from byte 65,536 on: every blob of every record, end to end
    /index/COLUMN    the columns of `fastdata.formats.index`, each contiguous; `offset` counts from the file's start
    /manifest        uint8: the manifest as JSON, padded with spaces

Plain h5py reads it: blob b is `f["payload"][o - 65536 : o - 65536 + n]` with `o = f["index/offset"][b]` and
`n = f["index/size"][b]`. h5py is used once, to learn where the data sets lie; no lock is taken and no handle is kept.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, ReadOptions
from fastdata.formats.files import checked_format, map_file, stamp_of, wrong_length
from fastdata.formats.index import DTYPES
from fastdata.formats.packed import Packed, PackedReader
from fastdata.manifest import Manifest

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# The payload starts behind room for all metadata (superblock, group, a dozen object headers take some 20 kB), at a
# multiple of every page size in use.
PAYLOAD_AT = 65536
PAYLOAD, INDEX, MANIFEST = "payload", "index", "manifest"


def open_hdf5(path: str, options: ReadOptions = READ_OPTIONS) -> PackedReader:
    """Open an HDF5 file that fastdata wrote.

    Raises:
        FormatError: unfinished, cut or changed since it was written, or not written by fastdata.
    """
    with open(path, "rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            raise FormatError(
                f"{path}: no HDF5 signature: not an HDF5 file, or one that was never finished; convert the data again"
            )
    stamp = stamp_of(os.stat(path))
    length = stamp.length
    places = _places(path)
    buffer = map_file(path, length, stamp)
    arrays = {name: _array(buffer, place, path) for name, place in places.items()}
    manifest = checked_format(Manifest.from_json(arrays.pop(MANIFEST).tobytes(), path), "hdf5", path)
    if [f.bytes for f in manifest.files] != [length]:
        raise wrong_length(path, length, manifest.files[0].bytes if manifest.files else 0)
    reopen = partial(open_hdf5, options=options)
    return PackedReader(Packed(path, manifest, arrays, [path], [length], reopen, [stamp], options=options))


def _places(path: str) -> dict[str, tuple[int, int, str]]:
    """(offset, length, dtype) of the manifest and of each column."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            if MANIFEST not in file or INDEX not in file:
                raise FormatError(
                    f"{path}: an HDF5 file that fastdata did not write (it holds {sorted(file)[:8]}); "
                    "fastdata reads HDF5 of its own layout only: convert the images with `fastdata convert`"
                )
            places = {name: _place(file[f"{INDEX}/{name}"], kind) for name, kind in DTYPES.items()}
            return places | {MANIFEST: _place(file[MANIFEST], "|u1")}
    except FormatError:
        raise
    except (OSError, LookupError, AttributeError, RuntimeError, ValueError, TypeError) as error:
        raise FormatError(
            f"{path}: cut or damaged HDF5 file ({error}); copy it again, or convert the data again"
        ) from error


def _place(data: h5py.Dataset, kind: str) -> tuple[int, int, str]:
    offset = data.id.get_offset()
    if data.size and (offset is None or data.dtype.str != kind or data.ndim != 1):
        raise ValueError(f"{data.name} is not one contiguous array of {kind}")
    return offset or 0, data.size, kind


def _array(buffer: memoryview, place: tuple[int, int, str], path: str) -> NDArray[np.generic]:
    offset, length, kind = place
    if not length:  # HDF5 gives no offset, or a wrong one, for a data set without elements
        return np.empty(0, kind)
    try:
        return np.frombuffer(buffer, kind, length, offset)
    except ValueError as error:
        raise FormatError(f"{path}: damaged HDF5 file ({error}); copy it again, or convert the data again") from error
