"""LMDB: a folder `X.lmdb/` of `data.mdb`, `index.fastdata` and `manifest.json`.

`txn.get(b"KEY.jpg")` with plain lmdb returns the JPEG. We ourselves read `data.mdb` by a memory map, at the places that
were noted after the last commit: no environment is held, so forks, threads, read-only folders and a user's own
`lmdb.open` of the same folder are all fine. Every transaction rewrites one of the two meta pages; their hash is in the
manifest, so a data set that was written to since is refused, never misread.

LMDBs that others wrote (no index of ours) are read through lmdb once, to note the places.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastdata.codec.sniff import sniff
from fastdata.errors import FormatError, RecordError
from fastdata.formats.base import Packed, PackedReader, check_lengths, map_file, read_manifest
from fastdata.formats.index import INDEX_NAME, IndexBuilder, unpack
from fastdata.manifest import MANIFEST_NAME, Manifest
from fastdata.record import parse_label

DATA_NAME = "data.mdb"
# In the first meta page, behind the page's own head of 16 bytes: LMDB's magic number, and where it notes the page size.
_MAGIC_AT, _MAGIC, _PAGE_SIZE_AT = 16, (0xBEEFC0DE).to_bytes(4, "little"), 40


def open_lmdb(path: str) -> PackedReader:
    """Open an LMDB folder, ours or foreign.

    Raises:
        FormatError: unfinished, cut or changed since it was written, or no LMDB.
    """
    if not os.path.exists(os.path.join(path, MANIFEST_NAME)):
        return _open_foreign(path)
    manifest = read_manifest(path, "lmdb")
    files, lengths = check_lengths(path, manifest)
    if [os.path.basename(f) for f in files] != [DATA_NAME, INDEX_NAME]:
        raise FormatError(
            f"{path}: damaged manifest: an LMDB data set is {DATA_NAME} and {INDEX_NAME}; convert the data again"
        )
    if meta_hash(files[0]) != manifest.files[0].head_sha256:
        raise FormatError(
            f"{path}: {DATA_NAME} was written to after fastdata made it, so the index no longer fits; convert the data "
            f"again, or delete {MANIFEST_NAME} and {INDEX_NAME} to read it as a foreign LMDB"
        )
    columns = unpack(map_file(files[1], lengths[1]), files[1])
    return PackedReader(Packed(path, manifest, columns, files[:1], lengths[:1], open_lmdb))


def meta_hash(path: str) -> str:
    """The hash of the two meta pages, which any later write changes."""
    with open(path, "rb") as file:
        page = int.from_bytes(file.read(_PAGE_SIZE_AT + 4)[_PAGE_SIZE_AT:], "little")
        file.seek(0)
        return hashlib.sha256(file.read(2 * min(page, 65536))).hexdigest()


def is_lmdb(head: bytes) -> bool:
    """Whether a file that starts like this is an LMDB data file."""
    return head[_MAGIC_AT : _MAGIC_AT + 4] == _MAGIC


def _open_foreign(path: str) -> PackedReader:
    data = os.path.join(path, DATA_NAME) if os.path.isdir(path) else path
    if os.path.exists(os.path.join(path, INDEX_NAME)):
        raise FormatError(
            f"{path}: {INDEX_NAME} without {MANIFEST_NAME}: an unfinished or incomplete copy of a fastdata data set; "
            "convert or copy it again"
        )
    length = os.stat(data).st_size
    builder = IndexBuilder()
    for key, row in _grouped(path):
        names, places, sizes, label = [], [], [], -1
        for name, offset, view in row:
            names.append(name)
            places.append((0, offset))
            sizes.append(len(view))
            if name == "cls":
                label = _foreign_label(key, view)
        builder.add_scanned(key, "", label, names, places, sizes)
    manifest = Manifest("lmdb", len(builder), tuple(builder.fields))
    return PackedReader(Packed(path, manifest, builder.columns(), [data], [length], open_lmdb))


def _foreign_label(key: str, blob: memoryview) -> int:
    try:
        return parse_label(key, blob)
    except RecordError:
        return -1


def _grouped(path: str) -> Iterator[tuple[str, list[tuple[str, int, memoryview]]]]:
    """Neighbouring entries with the same key before the first dot of the last part, as WebDataset groups them."""
    current, row = "", list[tuple[str, int, memoryview]]()
    for raw, offset, view in _entries(path):
        name = raw.decode("utf-8", "surrogateescape")
        head, slash, base = name.rpartition("/")
        stem, dot, field = base.partition(".")
        if not dot or not stem:
            kind = sniff(view[:64])
            if kind is None:
                continue  # `__len__`, `__keys__` and other book-keeping of other tools
            stem, field = base, kind
        key = head + slash + stem
        if key != current and row:
            yield current, row
            row = []
        current = key
        row.append((field.lower(), offset, view))
    if row:
        yield current, row


def _entries(path: str) -> Iterator[tuple[bytes, int, memoryview]]:
    """Every (key, offset in data.mdb, value) of an LMDB, in key order."""
    import lmdb

    try:
        environment = lmdb.open(path, readonly=True, lock=False, readahead=False, subdir=os.path.isdir(path))
    except lmdb.Error as error:
        raise FormatError(f"{path}: no readable LMDB ({error})") from error
    with environment, environment.begin(buffers=True) as transaction:
        page = environment.stat()["psize"]
        places = Places(page)
        for key, value in transaction.cursor():
            yield bytes(key), places.offset(value), value


class Places:
    """Turns values that lmdb hands out (views of its map) into offsets in `data.mdb`.

    LMDB writes its own number into the head of each page. A value lies in such a page, so the page's number times the
    page size, plus the place in the page, is its offset; the map's base address follows and must be the same for all.
    """

    def __init__(self, page: int) -> None:
        self._page = page
        self._base: int | None = None

    def offset(self, value: Any) -> int:
        """The offset of a value in the file.

        Raises:
            FormatError: the page that holds it does not say where it is.
        """
        if not len(value):
            return 0
        address: int = np.frombuffer(value, np.uint8).__array_interface__["data"][0]
        if self._base is None:
            self._base = address - self._by_page_number(address)
        return address - self._base

    def _by_page_number(self, address: int) -> int:
        import ctypes

        within = address % self._page
        number = int.from_bytes(ctypes.string_at(address - within, 8), "little")
        offset = number * self._page + within
        if not 2 <= number < 1 << 48:
            raise FormatError("this LMDB does not number its pages as LMDB 0.9 does; it cannot be read by place")
        return offset
