"""Find the values of an LMDB by walking its tree of pages in the data file.

In: the bytes of `data.mdb`. Out: (key, offset, size) of every value, in key order. lmdb itself would crash on a
truncated file, and refuses one that the same process has open; this walk reads inside the file only, and raises an
error for anything that does not fit. No page is read twice and no two nodes share bytes, so time and memory are bounded
by the size of the file, whatever its pages claim.

The layout is LMDB 0.9's (`lmdb.h`, `mdb.c`), little-endian on 64 bits. A page is its number (8 bytes), 2 of padding,
flags (2), `lower` and `upper` (2 each: the ends of the node table and of the free space), and the table: 2 bytes for
each node. A node is size or page number in three words of 2 bytes (the third also flags), the key's length (2), the
key, the value. The first two pages are meta pages; the one with the larger transaction number is valid. Even
transactions write the first and odd ones the second, in turn: if the newer one were lost, the file would look intact,
in an older state with fewer entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from fastdata.errors import FormatError

MAGIC = (0xBEEFC0DE).to_bytes(4, "little")
HEAD = 16  # bytes before a page's content
MAX_PAGE = 65536
_VERSION = 1
_NONE = 2**64 - 1  # the root of an empty tree
_BRANCH, _LEAF = 1, 2
_BIG, _SUB, _DUP = 1, 2, 4  # node flags: a value on its own pages, a database, several values
_MAX_KEY = 511
_OTHER_ORDER = 0x0A  # flags of a database whose keys are compared backwards, or as numbers

_META = struct.Struct("<II8xQI")  # magic, version, (address,) map size, page size
# Of the main database in a meta page: flags, (depth, numbers of pages,) entries, root, last page, transaction number.
_TREE_AT, _TREE = 92, struct.Struct("<H26xQQQQ")
_PAGE = struct.Struct("<Q2xHHH")
_NODE = struct.Struct("<HHHH")


def page_size(head: bytes | memoryview, where: str) -> int:
    """The page size that an LMDB's first bytes state.

    Raises:
        FormatError: not an LMDB, or one of another version.
    """
    if len(head) < HEAD + _META.size or bytes(head[HEAD : HEAD + 4]) != MAGIC:
        raise FormatError(f"{where}: not an LMDB data file; convert the images with `fastdata convert`")
    _, version, _, size = _META.unpack_from(head, HEAD)
    if version != _VERSION or not 512 <= size <= MAX_PAGE or size & (size - 1):
        raise FormatError(
            f"{where}: LMDB data of version {version} and pages of {size} bytes; only version 1 (LMDB 0.9) is supported"
        )
    return int(size)


class Data(Protocol):
    """The bytes of a file: a view of them, or an object that reads the parts that are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes | memoryview: ...


def walk(data: Data, where: str) -> Iterator[tuple[bytes, int, int]]:
    """(key, offset, size) of every value of an LMDB's main database, in key order.

    Raises:
        FormatError: cut, damaged, or with databases inside the database.
    """
    return _Walk(data, where).entries()


class _Walk:
    def __init__(self, data: Data, where: str) -> None:
        self._data, self._where = data, where
        self._size = page_size(data[: HEAD + _META.size], where)
        self._flags, self._entries, self._root, last, _ = self._newer_meta()
        pages = min(len(data) // self._size, last + 1)
        self._seen = np.zeros(pages, np.bool_)  # memory is allocated only where it is written
        self._seen[:2] = True

    def _newer_meta(self) -> tuple[int, ...]:
        """The main database as the valid meta page describes it."""
        if len(self._data) < 2 * self._size:
            raise self._damaged("meta pages")
        trees = []
        for number in (0, 1):
            page = self._data[number * self._size : (number + 1) * self._size]
            if int.from_bytes(page[:8], "little") != number or page_size(page, self._where) != self._size:
                raise self._damaged(f"meta page {number}")
            trees.append(_TREE.unpack_from(page, _TREE_AT))
        even, odd = (tree[4] for tree in trees)
        fits = even == odd == 0 or (even % 2 == 0 and odd % 2 == 1 and abs(even - odd) == 1)
        empty = (0, _NONE)  # entries and root before anything was written
        if not fits or any(not tree[4] and tree[1:3] != empty for tree in trees):
            raise self._damaged(f"meta pages of the transactions {even} and {odd}")
        return max(trees, key=lambda tree: int(tree[4]))

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        pending = [self._root] if self._root != _NONE else []
        ordered = not self._flags & _OTHER_ORDER
        found, last = 0, b""
        while pending:
            number = pending.pop()
            page, kind, starts = self._page(number)
            if kind & _BRANCH:
                pending += reversed(self._children(number, page, starts))
                continue
            for key, offset, size in self._leaf(number, page, starts):
                if ordered and key <= last:
                    raise self._damaged(f"key {key!r} after {last!r}")
                yield key, offset, size
                found, last = found + 1, key
        if found != self._entries:
            raise self._damaged(f"{found} entries instead of {self._entries}")

    def _page(self, number: int) -> tuple[bytes | memoryview, int, Sequence[int]]:
        """The bytes of a page that was not visited before, its flags, and the offsets of its nodes."""
        self._visit(number, 1)
        page = self._data[number * self._size : (number + 1) * self._size]
        own, kind, lower, upper = _PAGE.unpack_from(page)
        if own != number or kind & 0xF not in (_BRANCH, _LEAF) or not HEAD <= lower <= upper <= self._size:
            raise self._damaged(f"page {number}")
        starts = struct.unpack_from(f"<{(lower - HEAD) // 2}H", page, HEAD)
        if starts and not upper <= min(starts) <= max(starts) <= self._size - _NODE.size:
            raise self._damaged(f"page {number}")
        return page, kind, starts

    def _visit(self, number: int, count: int) -> None:
        """Mark pages as visited; each belongs to one node only."""
        if not 0 < count <= len(self._seen) - number or self._seen[number : number + count].any():
            raise self._damaged(f"page {number}")
        self._seen[number : number + count] = True

    def _children(self, number: int, page: bytes | memoryview, starts: Sequence[int]) -> list[int]:
        children, spans = [], []
        for start in starts:
            low, high, top, length = _NODE.unpack_from(page, start)
            children.append(low | high << 16 | top << 32)
            spans.append((start, start + _NODE.size + length))
        self._check_apart(number, spans)
        return children

    def _leaf(self, number: int, page: bytes | memoryview, starts: Sequence[int]) -> Iterator[tuple[bytes, int, int]]:
        nodes, spans = [], []
        for start in starts:
            low, high, flags, length = _NODE.unpack_from(page, start)
            if flags & (_SUB | _DUP):
                raise FormatError(
                    f"{self._where}: an LMDB with named databases or several values for a key; only a single plain "
                    "database can be read: convert the images with `fastdata convert`"
                )
            if not 0 < length <= _MAX_KEY:
                raise self._damaged(f"a key of {length} bytes")
            size, value = low | high << 16, start + _NODE.size + length
            spans.append((start, value + (8 if flags & _BIG else size)))
            nodes.append((bytes(page[start + _NODE.size : value]), value, size, flags & _BIG))
        self._check_apart(number, spans)
        for key, value, size, big in nodes:
            yield key, self._big(page, value, size) if big else number * self._size + value, size

    def _big(self, page: bytes | memoryview, value: int, size: int) -> int:
        """The offset of a value on its own pages."""
        number = int.from_bytes(page[value : value + 8], "little")
        self._visit(number, -(-(HEAD + size) // self._size))
        return number * self._size + HEAD

    def _check_apart(self, number: int, spans: list[tuple[int, int]]) -> None:
        """Check that the nodes of one page share no bytes and end within it."""
        spans.sort()
        if any(end > start for (_, end), (start, _) in pairwise((*spans, (self._size, 0)))):
            raise self._damaged(f"page {number}")

    def _damaged(self, what: str) -> FormatError:
        return FormatError(
            f"{self._where}: cut or damaged LMDB ({what}, in a file of {len(self._data)} bytes); copy it again from a "
            "whole one"
        )
