"""Where the values of an LMDB lie: a walk over its tree of pages, in the file as it is.

In: a map of `data.mdb`. Out: (key, offset, size) of every value, in key order. lmdb itself would die of a signal in a
file that was cut, and refuses one that the same process has open; this walk reads inside the map only, and what does
not fit is an error in words.

The layout is LMDB 0.9's (`lmdb.h`, `mdb.c`), little-endian on 64 bits. A page is its number (8 bytes), 2 of padding,
flags (2), `lower` and `upper` (2 each: the ends of the node table and of the free space), and the table: 2 bytes a
node. A node is size or page number in three words of 2 bytes (the third also flags), the key's length (2), the key, the
value. The two first pages are meta pages; the one with the larger transaction number holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fastdata.errors import FormatError

MAGIC = (0xBEEFC0DE).to_bytes(4, "little")
HEAD = 16  # bytes before a page's content
MAX_PAGE = 65536
_VERSION = 1
_NONE = 2**64 - 1  # the root of an empty tree
_BRANCH, _LEAF = 1, 2
_BIG, _SUB, _DUP = 1, 2, 4  # node flags: value on pages of its own, a database, several values
# Deeper than any tree can be: with two keys a page it would hold 2^32 pages.
_MAX_DEPTH = 32

_META = struct.Struct("<II8xQI")  # magic, version, (address,) map size, page size
# Of the main database in a meta page: entries, root, (last page,) transaction number.
_TREE_AT, _TREE = 120, struct.Struct("<QQ8xQ")
_PAGE = struct.Struct("<Q2xHHH")
_NODE = struct.Struct("<HHHH")


def page_size(head: bytes | memoryview, where: str) -> int:
    """The page size that an LMDB's first bytes state.

    Raises:
        FormatError: no LMDB, or one of another version.
    """
    if len(head) < HEAD + _META.size or bytes(head[HEAD : HEAD + 4]) != MAGIC:
        raise FormatError(f"{where}: no LMDB data file; convert the images with `fastdata convert`")
    _, version, _, size = _META.unpack_from(head, HEAD)
    if version != _VERSION or not 512 <= size <= MAX_PAGE or size & (size - 1):
        raise FormatError(
            f"{where}: LMDB data of version {version} and pages of {size} bytes; version 1 (LMDB 0.9) would do"
        )
    return int(size)


def walk(data: memoryview, where: str) -> Iterator[tuple[bytes, int, int]]:
    """(key, offset, size) of every value of an LMDB's main database, in key order.

    Raises:
        FormatError: cut, damaged, or with databases inside the database.
    """
    return _Walk(data, where).entries()


class _Walk:
    def __init__(self, data: memoryview, where: str) -> None:
        self._data, self._where = data, where
        self._size = page_size(data[: HEAD + _META.size], where)
        self._left = len(data) // self._size  # pages that may still be visited: a loop in the tree ends

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        if len(self._data) < 2 * self._size:
            raise self._damaged("meta pages")
        trees = [_TREE.unpack_from(self._data, number * self._size + _TREE_AT) for number in (0, 1)]
        entries, root, _ = max(trees, key=lambda tree: int(tree[2]))
        found = 0
        for entry in self._below(root, 0) if root != _NONE else ():
            yield entry
            found += 1
        if found != entries:
            raise self._damaged(f"{found} entries instead of {entries}")

    def _below(self, number: int, depth: int) -> Iterator[tuple[bytes, int, int]]:
        begin, self._left = number * self._size, self._left - 1
        end = begin + self._size
        if number < 2 or end > len(self._data) or self._left < 0 or depth > _MAX_DEPTH:
            raise self._damaged(f"page {number}")
        own, flags, lower, upper = _PAGE.unpack_from(self._data, begin)
        if own != number or flags & 0xF not in (_BRANCH, _LEAF) or not HEAD <= lower <= upper <= self._size:
            raise self._damaged(f"page {number}")
        for place in struct.unpack_from(f"<{(lower - HEAD) // 2}H", self._data, begin + HEAD):
            node = begin + place
            if not upper <= place <= self._size - _NODE.size:
                raise self._damaged(f"page {number}")
            if flags & _BRANCH:
                low, high, top, _ = _NODE.unpack_from(self._data, node)
                yield from self._below(low | high << 16 | top << 32, depth + 1)
            else:
                yield self._leaf(node, end)

    def _leaf(self, node: int, end: int) -> tuple[bytes, int, int]:
        low, high, flags, length = _NODE.unpack_from(self._data, node)
        size, place = low | high << 16, node + _NODE.size + length
        if flags & (_SUB | _DUP):
            raise FormatError(
                f"{self._where}: an LMDB with named databases or several values a key; one plain database is read: "
                "convert the images with `fastdata convert`"
            )
        key = bytes(self._data[node + _NODE.size : place])
        if flags & _BIG:
            if place + 8 > end:
                raise self._damaged(f"value of {key!r}")
            place = int.from_bytes(self._data[place : place + 8], "little") * self._size + HEAD
            end = len(self._data)
        if place + size > end:
            raise self._damaged(f"value of {key!r}")
        return key, place, size

    def _damaged(self, what: str) -> FormatError:
        return FormatError(
            f"{self._where}: cut or damaged LMDB ({what}, in a file of {len(self._data)} bytes); copy it again from a "
            "whole one"
        )
