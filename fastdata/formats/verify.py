"""Verify: report the problems of a data set, and check its index for consistency with itself and its manifest.

In: the columns of a data set of ours, whose shapes and ranges were checked when it was opened. Out: problems, each of
one record or of the data set itself. A faulty writer hashes its faults as well, so matching hashes alone prove nothing.
The time is linear, except for sorting, whatever the columns hold.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FastdataError, RecordError, raise_resource_error
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import Columns, key_hash
from fastdata.manifest import Fingerprint, Manifest
from fastdata.record import check_key, is_field_name

if TYPE_CHECKING:
    from fastdata.formats.base import Reader

# Takes the place of a record's number: a problem of the data set itself.
DATA_SET = -1
# How many keys are taken from the index at a time: a list of all would take more memory than the index.
_AT_ONCE = 1 << 16


class Problem(NamedTuple):
    """Something that is wrong.

    Attributes:
        row: the record's number; `DATA_SET` if it belongs to no record.
        name: the record's key; else the file or the data set.
        message: what is wrong.
        harmless: worth a warning, but nothing is damaged.
    """

    row: int
    name: str
    message: str
    harmless: bool = False


class Verified(ABC):
    """A reader that reports what is wrong with its data set."""

    @abstractmethod
    def problems(self) -> Iterator[Problem]:
        """Check the index, the checksums, and everything around the records; yield what is wrong.

        Raises:
            ResourceError: the machine failed, or ran out of something, which says nothing about the data.
        """

    def verify(self) -> Iterator[tuple[str, str]]:
        """Check the index and all checksums; yield (key or file, what is wrong)."""
        for problem in self.problems():
            yield problem.name, problem.message


def problems_of(reader: Reader) -> Iterator[Problem]:
    """The problems of any reader; those of a user's own class are not assigned to records."""
    if isinstance(reader, Verified):
        yield from reader.problems()
    else:
        yield from (Problem(DATA_SET, *found) for found in reader.verify())


def message_of(error: Exception, where: str) -> str:
    """The message of an error about the data.

    Raises:
        ResourceError: the error is due to the machine.
    """
    raise_resource_error(error, where)
    known = isinstance(error, (FastdataError, OSError)) and str(error)
    return str(error) if known else f"{type(error).__name__}: {error}"


def name_of(keys: Sequence[str], row: int) -> str:
    """The name of a record for messages, also if its key is damaged."""
    return keys[row] or f"record {row}, without a key"


def check_index_file(path: str, manifest: Manifest, begin: int = 0, end: int | None = None) -> Iterator[Problem]:
    """Check the bytes of an index, with the padding between its columns, against its hash."""
    digest = hashlib.sha256()
    with CheckedFile(path) as file:
        for piece in file.pieces(begin, file.length if end is None else end):
            digest.update(piece)
    if digest.hexdigest() != manifest.index_sha256:
        yield Problem(DATA_SET, path, "the padding of the index has changed")


def locations_fit(columns: Columns, fields: int, lengths: Sequence[int]) -> bool:
    """Whether every blob has a valid field number and lies in one of the files of these lengths."""
    field, file, offset, size = (np.asarray(columns[name], np.int64) for name in ("field", "file", "offset", "size"))
    if not bool(((field < fields) & (file >= 0) & (file < len(lengths))).all()):
        return False
    room = np.array([*lengths, 0], np.int64)[file]
    return bool(((offset >= 0) & (size >= 0) & (size <= room) & (offset <= room - size)).all())


def check_index(columns: Columns, manifest: Manifest, keys: Sequence[str], where: str) -> Iterator[Problem]:
    """Report what is wrong with an index.

    Args:
        columns: the index.
        manifest: the manifest of its data set.
        keys: the keys of its records.
        where: the data set, for messages.
    """
    codes: NDArray[Any] = columns["field"]
    sound = bool((codes < len(manifest.fields)).all())  # an unknown field number is reported with its record
    for row, message in _faults(columns, manifest, keys):
        sound = False
        yield Problem(row, where if row == DATA_SET else name_of(keys, row), message)
    # Any of these faults makes the fingerprint differ as well.
    if sound and _fingerprint(columns, manifest.fields) != manifest.fingerprint:
        message = "the manifest's fingerprint is not that of the keys, fields and checksums in the index"
        yield Problem(DATA_SET, where, message)


def _faults(columns: Columns, manifest: Manifest, keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    yield from _wrong_names(columns["field"], manifest)
    hashes = np.empty(len(keys), np.uint64)
    yield from _wrong_keys(columns, hashes)
    yield from _duplicate_keys(hashes, keys)
    yield from _not_found(columns, hashes)
    ends: NDArray[Any] = columns["start"][1:]
    rows = np.searchsorted(ends[:-1], np.arange(len(columns["size"])), side="right")  # of each blob
    yield from _duplicate_fields(columns["field"], rows, manifest.fields)
    yield from _overlaps(columns, rows, keys)


def _wrong_names(codes: NDArray[Any], manifest: Manifest) -> Iterator[tuple[int, str]]:
    """Names of fields and classes that are not valid in a manifest."""
    fields = manifest.fields
    yield from ((DATA_SET, f"{name!r} is not a valid field name") for name in fields if not is_field_name(name))
    for kind, names in ("field", fields), ("class", manifest.classes):
        yield from ((DATA_SET, f"the {kind} {name!r} appears twice") for name, n in Counter(names).items() if n > 1)
    used = np.zeros(len(fields), bool)
    used[codes[codes < len(fields)]] = True
    yield from ((DATA_SET, f"no record has the field {fields[code]!r}") for code in np.flatnonzero(~used).tolist())


def raw_keys(columns: Columns) -> Iterator[bytes]:
    """The bytes of each record's key."""
    blob, ends = memoryview(columns["key_bytes"]), columns["key_end"]  # type: ignore[arg-type]  # numpy's stubs lag
    for first in range(0, len(ends) - 1, _AT_ONCE):
        cuts = ends[first : first + _AT_ONCE + 1].tolist()
        yield from (bytes(blob[begin:end]) for begin, end in pairwise(cuts))


def _wrong_keys(columns: Columns, hashes: NDArray[np.uint64]) -> Iterator[tuple[int, str]]:
    """Keys that do not follow the key rule; the hash of each is written into `hashes`."""
    for row, raw in enumerate(raw_keys(columns)):
        hashes[row] = key_hash(raw)
        try:
            check_key(raw.decode("utf-8", "surrogateescape"))
        except RecordError as error:
            yield row, str(error)


def _duplicate_keys(hashes: NDArray[np.uint64], keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    for before, row in zip(order[same].tolist(), order[same + 1].tolist(), strict=True):
        if keys[before] == keys[row]:
            yield row, f"record {before} has the same key"


def _not_found(columns: Columns, hashes: NDArray[np.uint64]) -> Iterator[tuple[int, str]]:
    """Records that cannot be found through the table of hashes, by which keys are looked up."""
    table, rows = columns["hash"], columns["hash_row"].astype(np.int64)
    known = np.flatnonzero((rows >= 0) & (rows < len(hashes)))
    found = np.zeros(len(hashes), bool)
    found[rows[known[table[known] == hashes[rows[known]]]]] = True
    for row in np.flatnonzero(~found).tolist():
        yield row, "it cannot be found by its key: the index holds a different hash"


def _duplicate_fields(codes: NDArray[Any], rows: NDArray[np.int64], fields: Sequence[str]) -> Iterator[tuple[int, str]]:
    pairs = rows * (len(fields) + 1) + np.minimum(codes, len(fields))  # the last one: for unknown field numbers
    order = np.argsort(pairs, kind="stable")
    for at in np.flatnonzero(pairs[order[1:]] == pairs[order[:-1]]).tolist():
        code = int(codes[order[at]])
        yield int(rows[order[at]]), f"it has the field {fields[code] if code < len(fields) else code!r} twice"


def _overlaps(columns: Columns, rows: NDArray[np.int64], keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Records that share bytes with one before them in the file."""
    file, offset, size = (columns[name].astype(np.int64) for name in ("file", "offset", "size"))
    blobs = np.flatnonzero((size > 0) & (offset >= 0) & (offset <= np.iinfo(np.int64).max - size))
    order = blobs[np.lexsort((offset[blobs], file[blobs]))]
    borders = [0, *(np.flatnonzero(np.diff(file[order])) + 1).tolist(), len(order)]
    for begin, end in pairwise(borders):
        part = order[begin:end]
        ends = offset[part] + size[part]
        reached = np.maximum.accumulate(ends)
        holder = np.maximum.accumulate(np.where(ends == reached, np.arange(len(part)), 0))  # whose end that is
        for at in (np.flatnonzero(offset[part[1:]] < reached[:-1]) + 1).tolist():
            other = name_of(keys, int(rows[part[holder[at - 1]]]))
            yield int(rows[part[at]]), f"it shares bytes with record {other!r}"


def _fingerprint(columns: Columns, fields: Sequence[str]) -> str:
    fingerprint, start, code, crc = Fingerprint(), *(columns[name] for name in ("start", "field", "crc"))
    for row, key in enumerate(raw_keys(columns)):
        blobs = slice(int(start[row]), int(start[row + 1]))
        names = [fields[number] for number in code[blobs].tolist()]
        fingerprint.add(key, dict(zip(names, crc[blobs].tolist(), strict=True)))
    return fingerprint.hexdigest()
