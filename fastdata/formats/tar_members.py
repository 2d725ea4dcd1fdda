"""Locate the members of a foreign tar by its headers alone.

In: a file. Out: (name, kind, offset, size) of every member, as Python's tarfile finds them, up to the end-of-archive
mark. Headers are read one at a time and not trusted: an invalid number, a member that would not fit into the file, a
header that claims an impossible length, and data after the end raise an error. So time and memory are bounded by the
size of the file, whatever its headers claim. tarfile itself takes a hole of zeros for the end, recurses through chains
of headers, reads what they claim, and parses them in quadratic time.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from fastdata.errors import FormatError
from fastdata.formats.files import CheckedFile

BLOCK = 512
# PAX headers and long names: more than any real one has.
_MOST_EXTENDED = 1 << 20
# Headers before one member that only describe it: a global one, a PAX one, a long name, a long link.
_MOST_CHAINED = 8
# Zeros at the end of a tar: two blocks, then up to a whole record. A record is 20 blocks by custom; where it is larger
# (tar's -b), the file is a whole number of records long.
_USUAL_RECORD = 20 * BLOCK
_RECORDS = (*(_USUAL_RECORD << power for power in range(4)), *(1 << power for power in range(14, 24)))

_REGULAR, _DIRECTORY, _HARD_LINK = b"0", b"5", b"1"
# Links, devices and pipes have no data, whatever their size field states.
_WITHOUT_BYTES = frozenset((_HARD_LINK, b"2", b"3", b"4", _DIRECTORY, b"6"))
_PAX, _GLOBAL_PAX, _LONG_NAME, _LONG_LINK, _SPARSE = frozenset((b"x", b"X")), b"g", b"L", b"K", b"S"
# Members by which some programs describe another member or the volume: access lists, attributes, labels.
_DESCRIPTIONS = frozenset((b"A", b"D", b"E", b"I", b"N", b"V"))
_OCTAL = re.compile(rb" *([0-7]*) *")
_LENGTH = re.compile(rb"[0-9]{1,10} ")


class Member(NamedTuple):
    """A member that is not a folder. `regular` is False for links, pipes, devices and descriptions of other members."""

    name: str
    regular: bool
    offset: int
    size: int
    owner: bytes


def members(path: str) -> Iterator[Member]:
    """The members of a tar, in order.

    Raises:
        FormatError: cut, damaged, with members that cannot be read where they lie, or not a tar.
    """
    with CheckedFile(path) as file:
        try:
            yield from _Scan(file).members()
        except _HeaderError as error:
            raise FormatError(f"{path}: not a readable tar file ({error})") from error


class _HeaderError(Exception):
    """What is wrong with a header."""


class _Scan:
    def __init__(self, file: CheckedFile) -> None:
        self._path, self._file, self._length = file.path, file, file.length
        self._global: dict[bytes, bytes] = {}

    def members(self) -> Iterator[Member]:
        offset, ahead, chained = 0, dict[bytes, bytes](), 0
        while block := self._header(offset):
            kind, size = block[156:157], _number(block[124:136], offset)
            if b"size" in ahead and kind not in _PAX:
                size = _decimal(ahead[b"size"], offset)
            data = offset + BLOCK
            after = data if kind in _WITHOUT_BYTES else data + padded(size)
            if kind in _PAX or kind in (_GLOBAL_PAX, _LONG_NAME, _LONG_LINK):
                chained += 1
                if chained > _MOST_CHAINED:
                    raise _HeaderError(f"more than {_MOST_CHAINED} headers before one member, at byte {offset}")
                self._extend(kind, self._extended(offset, size), ahead)
            else:
                name = _name(block, {**self._global, **ahead})
                if after > data and data + size > self._length:
                    raise FormatError(f"{self._path}: cut in member {name!r}; copy the tar again from a whole one")
                if kind != _DIRECTORY and not (kind == b"\0" and name.endswith("/")):
                    yield self._member(block, name, data, size, b"GNU.sparse" in ahead)
                ahead, chained = {}, 0
            offset = after
        if ahead:
            raise _HeaderError(f"a header without its member, before byte {offset}")
        self._check_end(offset)

    def _header(self, offset: int) -> bytes:
        """The header at an offset; empty at the end-of-archive mark."""
        block = self._file.read(offset, BLOCK)
        if len(block) < BLOCK:
            what = "the end-of-archive mark is missing" if not block else "the file ends within a header"
            if not offset:
                raise _HeaderError("the file is empty" if not block else "the file is shorter than a header")
            raise self._cut(offset, what)
        if not any(block):
            return b""
        if not _is_header(block):
            if not offset:
                raise _HeaderError("it does not begin with a header")
            raise self._cut(offset, "what follows the last whole member is not a header")
        return block

    def _member(self, block: bytes, name: str, data: int, size: int, sparse: bool) -> Member:
        kind = block[156:157]
        if kind == _SPARSE or sparse:
            raise FormatError(f"{self._path}: member {name!r} is stored with holes; rewrite the tar without --sparse")
        if kind == _HARD_LINK and "." in name.rpartition("/")[2].lstrip("."):
            raise FormatError(
                f"{self._path}: member {name!r} is a hard link to another one; rewrite the tar with --hard-dereference"
            )
        regular = kind in (_REGULAR, b"\0", b"7")
        if not regular and kind not in _WITHOUT_BYTES and kind not in _DESCRIPTIONS:
            raise _HeaderError(f"member {name!r} of type {kind!r}, which is not supported")
        return Member(name, regular, data, size, block[265:297].partition(b"\0")[0])

    def _extended(self, offset: int, size: int) -> bytes:
        """The bytes of a header that describes the next member."""
        if size > _MOST_EXTENDED:
            raise _HeaderError(
                f"a PAX header or name of {size} bytes at byte {offset}, at most {_MOST_EXTENDED} are read"
            )
        if offset + BLOCK + size > self._length:
            raise self._cut(offset, "the file ends within a header")
        return self._file.read(offset + BLOCK, size)

    def _extend(self, kind: bytes, blob: bytes, ahead: dict[bytes, bytes]) -> None:
        if kind == _LONG_NAME:
            ahead.setdefault(b"path", blob.partition(b"\0")[0])
        elif kind == _GLOBAL_PAX:
            self._global |= _parsed_pax(blob)
        elif kind != _LONG_LINK:
            ahead |= _parsed_pax(blob)

    def _check_end(self, offset: int) -> None:
        """Refuse data after the end: after a hole of zeros, or from a second archive, they would be ignored."""
        start = offset
        while (offset := self._data_from(offset)) < self._length:
            blob = self._file.read(offset, 1 << 20)
            zeros = len(blob) - len(blob.lstrip(b"\0"))
            if zeros < len(blob):
                more = f"more data at byte {offset + zeros}: a hole, or archives that were joined"
                raise self._cut(start, f"zeros, as at the end of an archive, and {more}")
            offset += max(1, len(blob))
        zeros = self._length - start
        record = max([_USUAL_RECORD, *(size for size in _RECORDS if self._length % size == 0)])
        if zeros > record + 2 * BLOCK:
            raise self._cut(
                start, f"nothing but zeros up to the end of the file, {zeros} of them: more than fill a tar"
            )

    def _data_from(self, offset: int) -> int:
        """The next offset with data; holes of the file system are zeros that need not be read."""
        try:
            return os.lseek(self._file.descriptor, offset, os.SEEK_DATA)
        except AttributeError:
            return offset
        except OSError as error:
            return self._length if error.errno == errno.ENXIO else offset

    def _cut(self, offset: int, what: str) -> FormatError:
        return FormatError(
            f"{self._path}: cut or damaged at byte {offset}: {what}; copy the tar again from a whole one, or rewrite it"
        )


def padded(size: int) -> int:
    """A size rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _is_header(block: bytes) -> bool:
    """Whether a header's checksum is right, over unsigned or, as some old programs have it, signed bytes."""
    try:
        wanted = _number(block[148:156], 0)
    except _HeaderError:
        return False
    others = block[:148] + block[156:]
    unsigned = sum(others) + 8 * 32
    return wanted == unsigned or wanted == unsigned - 256 * sum(byte > 127 for byte in others)


def _name(block: bytes, found: dict[bytes, bytes]) -> str:
    name = found.get(b"path")
    if name is None:
        name, prefix = block[:100].partition(b"\0")[0], block[345:500].partition(b"\0")[0]
        if prefix and block[257:263] == b"ustar\0":  # GNU's old headers have times there
            name = prefix + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _parsed_pax(blob: bytes) -> dict[bytes, bytes]:
    """The records of a PAX header that concern name and size: `LENGTH KEY=VALUE`, each with a newline."""
    found, offset = dict[bytes, bytes](), 0
    while offset < len(blob) and blob[offset]:
        length = _LENGTH.match(blob, offset)
        end = offset + int(length[0]) if length else offset
        if length is None or end > len(blob) or end <= length.end() or blob[end - 1] != 0x0A:
            raise _HeaderError("a damaged PAX record")
        key, equals, value = blob[length.end() : end - 1].partition(b"=")
        if not equals or not key:
            raise _HeaderError("a damaged PAX record")
        if key in (b"path", b"size"):
            found[key] = value
        elif key.startswith(b"GNU.sparse"):
            found[b"GNU.sparse"] = b""
        offset = end
    return found


def _number(field: bytes, offset: int) -> int:
    """A number of a header: octal digits, or, where the first bit is set, 95 bits in two's complement."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        negative = field[0] & 0x40
        if negative or value >= 1 << 63:
            raise _HeaderError(f"a size {'below zero' if negative else 'of 2^63 or more'} at byte {offset}")
        return value
    digits = _OCTAL.fullmatch(field.partition(b"\0")[0])
    if digits is None:
        raise _HeaderError(f"not a number at byte {offset}: {field!r}")
    return int(digits[1] or b"0", 8)


def _decimal(value: bytes, offset: int) -> int:
    if not value.isdigit() or len(value) > 18:
        raise _HeaderError(f"not a size before byte {offset}: {value[:20]!r}")
    return int(value)
