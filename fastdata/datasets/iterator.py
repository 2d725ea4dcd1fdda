"""StreamIterator: the items of one epoch, in order, counted so that a state can be made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastdata.datasets.epochs import StreamPosition
from fastdata.turn import Turn


@dataclass(slots=True)
class Progress:
    """How far the latest iteration of a process has come.

    Attributes:
        position: where it began.
        total: how many items follow that position.
        given: how many of these were returned.
        ended: whether all were returned and the iterator has raised StopIteration.
        process: the process that iterates: a forked child inherits this value, but iterates for itself.
    """

    position: StreamPosition
    total: int
    given: int = 0
    ended: bool = False
    process: int = field(default_factory=os.getpid)


class StreamIterator(Iterator[Any]):
    """The iterator of a stream: it returns the items of one epoch and counts them. Threads may share it.

    Args:
        items: the epoch's samples or batches.
        progress: counts them.
        on_first: called with the position where the epoch began, when the first item is requested.
    """

    def __init__(self, items: Iterator[Any], progress: Progress, on_first: Callable[[StreamPosition], None]) -> None:
        self._items, self._progress, self._on_first = items, progress, on_first
        self._requested = False
        self._turn = Turn()

    def __next__(self) -> Any:
        with self._turn:
            if not self._requested:
                self._requested = True
                self._on_first(self._progress.position)
            try:
                item = next(self._items)
            except StopIteration:
                self._progress.ended = self._progress.given == self._progress.total  # false after an error
                raise
            self._progress.given += 1
            return item
