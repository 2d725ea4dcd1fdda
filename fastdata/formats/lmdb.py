"""LMDB: a folder `X.lmdb/` of `data.mdb`, `index.fastdata` and `manifest.json`.

`txn.get(b"KEY.jpg")` with plain lmdb returns the JPEG. fastdata reads `data.mdb` as a plain file, at the offsets
that were recorded after the last commit: no environment is open, so forks, threads, read-only folders and a user's own
`lmdb.open` of the same folder all work. Every transaction rewrites one of the two meta pages; their hash is in the
manifest, so a data set that was written to since is refused, never misread.

Foreign LMDBs (without our index) are walked once to learn the offsets.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, ReadOptions
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import INDEX_NAME
from fastdata.formats.lmdb_foreign import FileBytes, open_foreign
from fastdata.formats.lmdb_pages import MAX_PAGE, page_size, walk
from fastdata.formats.opening import check_files, load_index, read_manifest
from fastdata.formats.packed import Packed, PackedReader
from fastdata.formats.rows import Rows
from fastdata.formats.verify import DATA_SET, Problem, check_index_file, name_of, raw_keys
from fastdata.manifest import MANIFEST_NAME

DATA_NAME = "data.mdb"


def open_lmdb(path: str, options: ReadOptions = READ_OPTIONS) -> PackedReader:
    """Open an LMDB folder, ours or foreign.

    Raises:
        FormatError: unfinished, cut or changed since it was written, or not an LMDB.
    """
    folder, name = os.path.split(path)
    if name == DATA_NAME and any(os.path.exists(os.path.join(folder, each)) for each in (INDEX_NAME, MANIFEST_NAME)):
        path = folder  # the data file of one of our data sets
    manifest = read_manifest(path, "lmdb") if os.path.isdir(path) else None
    if manifest is None:
        data = os.path.join(path, DATA_NAME) if os.path.isdir(path) else path
        if os.path.exists(os.path.join(path, INDEX_NAME)):
            raise FormatError(
                f"{path}: {INDEX_NAME} without {MANIFEST_NAME}: an unfinished or incomplete copy of a fastdata data "
                "set; convert or copy it again"
            )
        return open_foreign(path, data, options)
    files, stamps = check_files(path, manifest)
    if [os.path.basename(f) for f in files] != [DATA_NAME, INDEX_NAME]:
        raise FormatError(
            f"{path}: damaged manifest: an LMDB data set is {DATA_NAME} and {INDEX_NAME}; convert the data again"
        )
    if meta_hash(files[0]) != manifest.files[0].head_sha256:
        raise FormatError(
            f"{path}: {DATA_NAME} was written to after fastdata made it, so the index no longer fits; convert the data "
            f"again, or delete {MANIFEST_NAME} and {INDEX_NAME} to read it as a foreign LMDB"
        )
    lengths = [stamps[0].length]
    columns, check = load_index(files[1], stamps[1], manifest, lengths)
    reopen = partial(open_lmdb, options=options)
    return PackedReader(
        Packed(
            path, manifest, columns, files[:1], lengths, reopen, stamps[:1], _check_rest, options, check_columns=check
        )
    )


def meta_hash(path: str) -> str:
    """The hash of the two meta pages, which any later write changes.

    Raises:
        FormatError: not an LMDB.
    """
    with CheckedFile(path) as file:
        head = file.read(0, 2 * MAX_PAGE)
    return hashlib.sha256(head[: 2 * page_size(head, path)]).hexdigest()


def rest_hash(data: CheckedFile, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> str:
    """The hash of everything around the values: LMDB's tree, by which plain lmdb finds them."""
    digest, end = hashlib.sha256(), 0
    order = np.argsort(offsets, kind="stable")
    values = zip(offsets[order].tolist(), sizes[order].tolist(), strict=True)
    for offset, size in chain(values, [(data.length, 0)]):
        for piece in data.pieces(end, offset):
            digest.update(piece)
        end = max(end, offset + size)
    return digest.hexdigest()


def _check_rest(packed: Packed, _rows: range) -> Iterator[Problem]:
    """Check that plain lmdb finds each value where the index says, and that nothing around the values has changed."""
    offsets, sizes = (np.asarray(packed.columns[name], np.int64) for name in ("offset", "size"))
    path = packed.files[0]
    with CheckedFile(path, packed.lengths[0], packed.stamps[0]) as data:
        if rest_hash(data, offsets, sizes) != packed.manifest.files[0].rest_sha256:
            message = "LMDB's own pages have changed: plain lmdb may not find every record, or crash"
            yield Problem(DATA_SET, path, message)
        yield from check_index_file(os.path.join(packed.path, INDEX_NAME), packed.manifest)
        yield from _check_tree(packed, data)


def _check_tree(packed: Packed, data: CheckedFile) -> Iterator[Problem]:
    """Report fields that LMDB's tree does not hold at the offset in the index, and entries that are not fields."""
    hashes, offsets, lengths = array("q"), array("q"), array("q")
    for name, start, length in walk(FileBytes(data), data.path):
        hashes.append(hash(name))  # 64 bits, used within this process only to join the two
        offsets.append(start)
        lengths.append(length)
    order = np.argsort(np.array(hashes, np.int64))
    stored, offset_of, length_of = (np.array(each, np.int64)[order] for each in (hashes, offsets, lengths))
    offset, size = (np.asarray(packed.columns[name], np.int64) for name in ("offset", "size"))
    names = np.fromiter(map(hash, _names(packed)), np.int64, len(size))
    at = np.minimum(np.searchsorted(stored, names), max(len(stored) - 1, 0))
    found = stored[at] == names if len(stored) else np.zeros(len(names), bool)
    right = found.copy()
    if len(stored):  # an empty value has no offset
        right &= (length_of[at] == size) & ((offset_of[at] == offset) | (size == 0))
    keys, fields = Rows(packed.columns).keys, packed.manifest.fields
    for blob in np.flatnonzero(~right).tolist():
        row = int(np.searchsorted(packed.columns["start"], blob, side="right")) - 1
        message = f"plain lmdb finds field {fields[packed.columns['field'][blob]]!r} elsewhere, or not at all"
        yield Problem(row, name_of(keys, row), message)
    known = len(np.unique(at[found]))
    if known != len(stored):
        yield Problem(DATA_SET, data.path, f"LMDB holds {len(stored)} entries, of which {known} belong to records")


def _names(packed: Packed) -> Iterator[bytes]:
    """The key of each field in LMDB."""
    start, field = (memoryview(packed.columns[name]) for name in ("start", "field"))  # type: ignore[arg-type]
    names = [b"." + name.encode("utf-8", "surrogateescape") for name in packed.manifest.fields]
    for row, key in enumerate(raw_keys(packed.columns)):
        for blob in range(start[row], start[row + 1]):
            yield key + names[field[blob]]
