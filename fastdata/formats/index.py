"""The columnar index: the location of every blob of a data set, in flat arrays that are used without parsing.

One index serves every format. For N records with E blobs in all:

    start       int64  N+1   record i owns the blobs start[i] .. start[i+1]
    field       uint16 E     which field (a code into the manifest's `fields`)
    file        int32  E     which of the data files
    offset      int64  E     where in the file
    size        int64  E     how many bytes
    crc         uint32 E     CRC-32 of the blob
    label       int64  N     class number, -1 if none
    key_end     int64  N+1   key i is key_bytes[key_end[i]:key_end[i+1]], UTF-8
    key_bytes   uint8
    path_end    int64  N+1   the same for source paths (file-system bytes)
    path_bytes  uint8
    hash        uint64 N     64-bit hashes of the keys, in increasing order ...
    hash_row    int64  N     ... and the record each belongs to: `find` is a binary search

Opening reads the arrays, or maps very large ones (`fastdata.formats.opening`), and checks that they are possible
(`fastdata.formats.rows`, which also reads them). Forked processes share their pages.
As a file of its own (`pack`, `unpack`) an index is: the magic, the length of a JSON header as 8 digits, the header
({column: [dtype, length, offset]}), and the arrays, little-endian, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError, RecordError
from fastdata.manifest import Fingerprint
from fastdata.record import Record

Columns = Mapping[str, NDArray[np.generic]]

DTYPES = {
    "start": "<i8", "field": "<u2", "file": "<i4", "offset": "<i8", "size": "<i8", "crc": "<u4", "label": "<i8",
    "key_end": "<i8", "key_bytes": "|u1", "path_end": "<i8", "path_bytes": "|u1", "hash": "<u8", "hash_row": "<i8",
}  # fmt: skip
# In the folder formats the index is a file beside the data. It is created first and the manifest last, so an index
# without a manifest marks a data set that was never finished.
INDEX_NAME = "index.fastdata"
_MAGIC = b"FDINDEX1"
_MOST_HEADER = 4096  # four times the longest possible one; parsing JSON takes many times its size in memory
_ALIGN = 64  # a cache line; more than any dtype needs
_MAX_FIELDS = 2**16  # field codes are uint16


def key_hash(key: bytes) -> int:
    """The 64-bit hash by which `find` looks up keys."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


class IndexBuilder:
    """Collect rows while a data set is written (or a foreign one scanned); takes about 100 bytes for each record."""

    def __init__(self, fields: Sequence[str] = ()) -> None:
        self.fields: list[str] = list(fields)
        self._codes = {name: code for code, name in enumerate(self.fields)}
        self._fingerprint = Fingerprint()
        self._start, self._key_end, self._path_end = array("q", [0]), array("q", [0]), array("q", [0])
        self._field, self._file, self._crc = array("H"), array("i"), array("I")
        self.offset, self.size = array("q"), array("q")  # LMDB knows its offsets last and then fills them in
        self._label, self._hash = array("q"), array("Q")
        self._keys, self._paths = bytearray(), bytearray()
        self._seen: set[int] = set()

    def __len__(self) -> int:
        return len(self._label)

    def add(self, record: Record, locations: Sequence[tuple[int, int]]) -> None:
        """Add a written record that passed `check_new`; `locations` holds (file, offset) of each field, in order."""
        checksums = {name: zlib.crc32(blob) for name, blob in record.fields.items()}
        sizes = [len(blob) for blob in record.fields.values()]
        self.add_scanned(
            record.key, record.path, record.label, list(record.fields), locations, sizes, list(checksums.values())
        )
        self._fingerprint.add(record.key.encode("utf-8"), checksums)

    def check_new(self, record: Record) -> None:
        """Refuse a record that does not fit into the index with the others; called before anything is written.

        Raises:
            RecordError: its key was written before, or there are too many different field names.
        """
        new = record.fields.keys() - self._codes.keys()
        if len(self.fields) + len(new) > _MAX_FIELDS:
            raise RecordError(
                f"record {record.key!r}: more than {_MAX_FIELDS} different field names; "
                "a field name says what a blob is, the key says which record it belongs to"
            )
        key, raw = record.key, record.key.encode("utf-8")
        number = key_hash(raw)
        if number in self._seen:
            for row in np.flatnonzero(np.frombuffer(self._hash, dtype=np.uint64) == number):
                if self._keys[self._key_end[row] : self._key_end[row + 1]] == raw:
                    raise RecordError(f"key {key!r} was written before, as record {row}; keys must be distinct")

    def add_scanned(
        self,
        key: str,
        path: str,
        label: int,
        names: Sequence[str],
        locations: Sequence[tuple[int, int]],
        sizes: Sequence[int],
        checksums: Sequence[int] | None = None,
    ) -> None:
        """Add a record by its locations; foreign data have no checksums, since their blobs are not read."""
        raw = key.encode("utf-8", "surrogateescape")
        for name in names:
            if name not in self._codes:
                self._codes[name] = len(self.fields)
                self.fields.append(name)
            self._field.append(self._codes[name])
        for file, offset in locations:
            self._file.append(file)
            self.offset.append(offset)
        self.size.extend(sizes)
        self._crc.extend(checksums if checksums is not None else [0] * len(sizes))
        self._start.append(len(self._field))
        self._label.append(label)
        self._keys += raw
        self._key_end.append(len(self._keys))
        self._paths += path.encode("utf-8", "surrogateescape")
        self._path_end.append(len(self._paths))
        number = key_hash(raw)
        self._hash.append(number)
        self._seen.add(number)

    def names(self) -> Iterator[tuple[int, bytes]]:
        """(blob number, "KEY.FIELD" as bytes) of every blob, in order."""
        for row in range(len(self)):
            key = bytes(self._keys[self._key_end[row] : self._key_end[row + 1]])
            for blob in range(self._start[row], self._start[row + 1]):
                yield blob, key + b"." + self.fields[self._field[blob]].encode("ascii")

    def fingerprint(self) -> str:
        return self._fingerprint.hexdigest()

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The finished columns, in the order of the table above."""
        hashes = np.frombuffer(self._hash, dtype=np.uint64) if self._hash else np.empty(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        raw = {
            "start": self._start, "field": self._field, "file": self._file, "offset": self.offset, "size": self.size,
            "crc": self._crc, "label": self._label, "key_end": self._key_end,
            "key_bytes": np.frombuffer(bytes(self._keys), np.uint8), "path_end": self._path_end,
            "path_bytes": np.frombuffer(bytes(self._paths), np.uint8), "hash": hashes[order], "hash_row": order,
        }  # fmt: skip
        return {name: np.asarray(raw[name], dtype=np.dtype(kind)) for name, kind in DTYPES.items()}


def _header(columns: Columns) -> bytes:
    """Everything before the arrays of a packed index."""
    layout: dict[str, list[str | int]] = {}
    offset = 0
    for name, kind in DTYPES.items():
        layout[name] = [kind, len(columns[name]), offset]
        offset += -(-columns[name].nbytes // _ALIGN) * _ALIGN
    header = json.dumps(layout, separators=(",", ":")).encode("ascii")
    header += b" " * (-(len(_MAGIC) + 8 + len(header)) % _ALIGN)
    return _MAGIC + b"%08d" % len(header) + header


def pack(columns: Columns) -> Iterator[bytes]:
    """Yield the index as a file of its own, piece by piece."""
    yield _header(columns)
    for name in DTYPES:
        blob = columns[name].tobytes()
        yield blob
        yield bytes(-len(blob) % _ALIGN)


def index_hash(columns: Columns) -> str:
    """The SHA-256 of the packed index, as the manifest states it."""
    digest = hashlib.sha256()
    for piece in pack(columns):
        digest.update(piece)
    return digest.hexdigest()


def unpack(buffer: memoryview, where: str) -> dict[str, NDArray[np.generic]]:
    """The columns as read-only views of a packed index.

    Raises:
        FormatError: these bytes are not an index, or it does not fit into them.
    """
    if bytes(buffer[:8]) != _MAGIC or not bytes(buffer[8:16]).isdigit():
        raise FormatError(f"{where}: not a fastdata index; convert the data again")
    base = 16 + int(bytes(buffer[8:16]))
    if base > _MOST_HEADER:
        raise FormatError(f"{where}: damaged index (a header of {base:,} bytes); convert the data again")
    try:
        layout = json.loads(bytes(buffer[16:base]))
        columns = {
            name: np.frombuffer(buffer, np.dtype(kind), layout[name][1], base + layout[name][2])
            if layout[name][1]
            else np.empty(0, np.dtype(kind))
            for name, kind in DTYPES.items()
        }
        if bytes(buffer[:base]) != _header(columns):
            raise ValueError("its header does not fit")
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{where}: damaged index ({error}); convert the data again") from error
    return columns
