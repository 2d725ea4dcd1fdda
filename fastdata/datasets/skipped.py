"""Skipped: the list of replaced samples, in memory that a stream shares with the workers that replace them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from multiprocessing import context
from typing import Any

from fastdata.sharedmem import SharedBlock

# The record and the length of the reason; the reason follows as UTF-8, cut to the rest of the row.
_HEAD = struct.Struct("<qq")
_ROW = 512
# 8 MB if all rows are used; unused rows take no memory. `fastdata verify` lists all damaged records.
_MOST = 16_384
_COUNT = struct.Struct("<q")


class Skipped:
    """A list of (record, reason) that all processes share; the first 16,384 are kept."""

    def __init__(self) -> None:
        self._block = SharedBlock(_COUNT.size + _MOST * _ROW)

    def add(self, record: int, reason: str) -> None:
        """Add a sample that was replaced."""
        text = reason.encode("utf-8", "replace")[: _ROW - _HEAD.size]
        with self._block.locked() as view:
            (count,) = _COUNT.unpack_from(view)
            if count < _MOST:
                start = _COUNT.size + count * _ROW
                _HEAD.pack_into(view, start, record, len(text))
                view[start + _HEAD.size : start + _HEAD.size + len(text)] = text
                _COUNT.pack_into(view, 0, count + 1)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with self._block.locked() as view:
            (count,) = _COUNT.unpack_from(view)
            rows = bytes(view[_COUNT.size : _COUNT.size + count * _ROW])
        for start in range(0, len(rows), _ROW):
            record, length = _HEAD.unpack_from(rows, start)
            text = rows[start + _HEAD.size : start + _HEAD.size + length]
            yield record, text.decode("utf-8", "ignore")  # the last character may be cut

    def __reduce__(self) -> tuple[Callable[..., Skipped], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:  # a copy has its own list
            return Skipped, ()
        return _attach, (self._block,)


def _attach(block: SharedBlock) -> Skipped:
    skipped = Skipped.__new__(Skipped)
    skipped._block = block
    return skipped
