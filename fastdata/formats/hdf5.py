"""HDF5: one file `X.h5`, read by mapping the places where its data sets lie.

    /payload         uint8, contiguous, from byte 65,536 on: every blob of every record, end to end
    /index/COLUMN    the columns of `fastdata.formats.index`, each contiguous; `offset` counts from the file's start
    /manifest        uint8: the manifest as JSON, padded with spaces

Plain h5py reads it: blob b is `f["payload"][o - 65536 : o - 65536 + n]` with `o = f["index/offset"][b]` and
`n = f["index/size"][b]`. h5py is used once, to learn where the data sets lie; no lock is taken and no handle is kept.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.formats.base import Packed, PackedReader, checked_format, map_file, wrong_length
from fastdata.formats.index import DTYPES
from fastdata.manifest import Manifest

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# The payload starts behind room for all metadata (superblock, group, a dozen object headers take some 20 kB), at a
# multiple of every page size in use.
PAYLOAD_AT = 65536
PAYLOAD, INDEX, MANIFEST = "payload", "index", "manifest"


def open_hdf5(path: str) -> PackedReader:
    """Open an HDF5 file that fastdata wrote.

    Raises:
        FormatError: unfinished, cut or changed since it was written, or not written by fastdata.
    """
    with open(path, "rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            raise FormatError(
                f"{path}: no HDF5 signature: not an HDF5 file, or one that was never finished; convert the data again"
            )
    places = _places(path)
    length = os.stat(path).st_size
    buffer = map_file(path, length)
    arrays = {name: _array(buffer, place, path) for name, place in places.items()}
    manifest = checked_format(Manifest.from_json(arrays.pop(MANIFEST).tobytes(), path), "hdf5", path)
    if [f.bytes for f in manifest.files] != [length]:
        raise wrong_length(path, length, manifest.files[0].bytes if manifest.files else 0)
    return PackedReader(Packed(path, manifest, arrays, [path], [length], open_hdf5))


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
            sets = {name: file[INDEX][name] for name in DTYPES} | {MANIFEST: file[MANIFEST]}
            return {name: (data.id.get_offset() or 0, data.size, data.dtype.str) for name, data in sets.items()}
    except (OSError, KeyError, AttributeError, RuntimeError) as error:
        raise FormatError(
            f"{path}: cut or damaged HDF5 file ({error}); copy it again, or convert the data again"
        ) from error


def _array(buffer: memoryview, place: tuple[int, int, str], path: str) -> NDArray[np.generic]:
    offset, length, kind = place
    if not length:  # HDF5 gives no offset, or a wrong one, for a data set without elements
        return np.empty(0, kind)
    try:
        return np.frombuffer(buffer, kind, length, offset)
    except ValueError as error:
        raise FormatError(f"{path}: damaged HDF5 file ({error}); copy it again, or convert the data again") from error
