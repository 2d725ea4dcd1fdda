"""HDF5: one file `X.h5`, read at the offsets of its data sets.

    /payload         uint8, contiguous, from byte 65,536 on: every blob of every record, end to end
    /index/COLUMN    the columns of `fastdata.formats.index`, each contiguous; `offset` counts from the file's start
    /manifest        uint8: the manifest as JSON, padded with spaces

Plain h5py reads it: blob b is `f["payload"][o - 65536 : o - 65536 + n]` with `o = f["index/offset"][b]` and
`n = f["index/size"][b]`. h5py is used once, to learn these offsets; no lock is taken and no handle is kept open.
Only the file itself is read: a link, which may lead to any other file, is refused before it is followed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, ReadOptions
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import DTYPES, Columns
from fastdata.formats.opening import check_index, load, manifest_in
from fastdata.formats.packed import Packed, PackedReader
from fastdata.formats.verify import DATA_SET, Problem

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# The payload starts behind room for all metadata (superblock, group, a dozen object headers take some 20 kB), at a
# multiple of every page size in use.
PAYLOAD_AT = 65536
PAYLOAD, INDEX, MANIFEST = "payload", "index", "manifest"
# HDF5 aligns what is at least as large as a threshold. The payload must be aligned and HDF5's own blocks (2 kB) must
# not, so a smaller payload is padded with zeros to this size.
SMALLEST = 4096


def open_hdf5(path: str, options: ReadOptions = READ_OPTIONS) -> PackedReader:
    """Open an HDF5 file that fastdata wrote.

    Raises:
        FormatError: unfinished, cut or changed since it was written, or not written by fastdata.
    """
    with CheckedFile(path) as file:
        if file.read(0, len(SIGNATURE)) != SIGNATURE:
            raise FormatError(
                f"{path}: no HDF5 signature: not an HDF5 file, or one that was never finished; convert the data again"
            )
        extents = _extents(file)
        begin, size = extents.pop(MANIFEST)
        manifest = manifest_in(file, begin, begin + size, "hdf5")
        loaded = load(file, list(extents.values()))
    columns = {name: np.frombuffer(part, DTYPES[name]) for name, part in zip(extents, loaded.parts, strict=True)}
    check_index(columns, manifest, [file.length], path)
    reopen = partial(open_hdf5, options=options)
    return PackedReader(
        Packed(
            path, manifest, columns, [path], [file.length], reopen, [file.stamp], _check_rest, options,
            check_columns=loaded.check,
        )
    )  # fmt: skip


def _extents(file: CheckedFile) -> dict[str, tuple[int, int]]:
    """(offset, size in bytes) of the manifest and of each column."""
    import h5py

    path = file.path
    try:
        with h5py.File(_Readable(file), "r") as tree:
            if any(tree.get(name, getlink=True) is None for name in (MANIFEST, INDEX)):
                raise FormatError(
                    f"{path}: an HDF5 file that fastdata did not write (it holds {sorted(tree)[:8]}); "
                    "fastdata reads HDF5 of its own layout only: convert the images with `fastdata convert`"
                )
            index = _own(tree, INDEX)
            if _extent(_own(tree, PAYLOAD), "|u1")[0] != PAYLOAD_AT:
                raise ValueError(f"{PAYLOAD} does not begin at byte {PAYLOAD_AT}")
            extents = {name: _extent(_own(index, name), kind) for name, kind in DTYPES.items()}
            return extents | {MANIFEST: _extent(_own(tree, MANIFEST), "|u1")}
    except FormatError:
        raise
    except (OSError, LookupError, AttributeError, RuntimeError, ValueError, TypeError) as error:
        raise FormatError(
            f"{path}: cut or damaged HDF5 file ({error}); copy it again, or convert the data again"
        ) from error


def _own(group: h5py.Group, name: str) -> Any:
    """The member of a group with this name, if it lies in this file: links are not followed."""
    import h5py

    kind = group.get(name, getlink=True, getclass=True)
    if kind is not h5py.HardLink:
        raise ValueError(f"{name} is a link to somewhere else ({getattr(kind, '__name__', kind)})")
    return group[name]


def _extent(data: h5py.Dataset, kind: str) -> tuple[int, int]:
    if data.dtype.str != kind or data.ndim != 1:
        raise ValueError(f"{data.name} is not one array of {kind}")
    if not data.size:  # HDF5 gives no offset, or a wrong one, for a data set without elements
        return 0, 0
    offset = data.id.get_offset()
    if offset is None:
        raise ValueError(f"{data.name} is not contiguous")
    return offset, data.size * data.dtype.itemsize


def _check_rest(packed: Packed, _rows: range) -> Iterator[Problem]:
    """Check that plain HDF5 reads the file: everything around the blobs is unchanged. Its blocks have checksums."""
    import h5py

    path = packed.path
    with CheckedFile(path, packed.lengths[0], packed.stamps[0]) as file, h5py.File(_Readable(file), "r") as tree:
        for message in chain(_wrong_tree(tree, packed.columns), _wrong_padding(tree, file, packed)):
            yield Problem(DATA_SET, path, message)


def _wrong_tree(tree: h5py.File, columns: Columns) -> Iterator[str]:
    """Report groups and data sets that do not fit the layout."""
    lengths = {f"{INDEX}/{name}": len(column) for name, column in columns.items()}
    payload = max(int(columns["size"].sum()), SMALLEST)
    lengths |= {PAYLOAD: payload, MANIFEST: tree[MANIFEST].size}
    for group, wanted in (tree, {PAYLOAD, INDEX, MANIFEST}), (tree[INDEX], set(DTYPES)):
        if set(group) != wanted:
            yield f"the group {group.name} holds {sorted(group)[:20]}, not {sorted(wanted)}"
    for name in ("/", INDEX, *lengths):
        if len(tree[name].attrs):
            yield f"{name} has attributes, which fastdata does not write"
    for name, length in lengths.items():
        data = tree[name]
        plain = data.chunks is None and data.external is None and not data.id.get_create_plist().get_nfilters()
        if not plain or data.shape != (length,) or len(data[:1]) != min(length, 1):
            yield f"{name} is not one plain array of {length} elements"


def _wrong_padding(tree: h5py.File, file: CheckedFile, packed: Packed) -> Iterator[str]:
    """Report bytes of the payload and the manifest that are neither content nor padding."""
    offset, size = (np.asarray(packed.columns[name], np.int64) for name in ("offset", "size"))
    ends = np.concatenate([[PAYLOAD_AT], offset + size])
    if not np.array_equal(ends[:-1], offset):
        yield "the payload is not the fields of all records, end to end"
    padding = file.pieces(int(ends[-1]), PAYLOAD_AT + tree[PAYLOAD].size)
    if any(np.frombuffer(piece, np.uint8).any() for piece in padding):
        yield "the padding of the payload has changed"
    begin, room = _extent(tree[MANIFEST], "|u1")
    if file.read(begin, room) != packed.manifest.to_json().ljust(room):
        yield "the padding of the manifest has changed"


class _Readable(io.RawIOBase):
    """An open file for h5py to read: the very one that was checked, even if its path was replaced since."""

    def __init__(self, file: CheckedFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.length}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, room: Any) -> int:
        view = memoryview(room).cast("B")
        self._file.read_into(view, self._at)
        self._at += len(view)
        return len(view)
