"""StreamIterator: the items of one epoch, in order, counted where a state is made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastdata.datasets.epochs import Place
from fastdata.turn import Turn


@dataclass(slots=True)
class Progress:
    """How far the latest iteration of a process has come.

    Attributes:
        place: where it began.
        total: how many items there were from there on.
        given: how many of these were handed out.
        ended: all of them, and the end was told.
        process: whose iteration it is: a forked child inherits this, but iterates for itself.
    """

    place: Place
    total: int
    given: int = 0
    ended: bool = False
    process: int = field(default_factory=os.getpid)


class StreamIterator(Iterator[Any]):
    """What `iter` of a stream gives: the items of one epoch, counted. Threads may take turns on it.

    Args:
        items: the epoch's samples or batches.
        progress: where they are counted.
        begun: called with where the epoch began when the first item is asked for.
    """

    def __init__(self, items: Iterator[Any], progress: Progress, begun: Callable[[Place], None]) -> None:
        self._items, self._progress, self._begun = items, progress, begun
        self._asked = False
        self._turn = Turn()

    def __next__(self) -> Any:
        with self._turn:
            if not self._asked:
                self._asked = True
                self._begun(self._progress.place)
            try:
                item = next(self._items)
            except StopIteration:
                self._progress.ended = self._progress.given == self._progress.total  # not where an error was raised
                raise
            self._progress.given += 1
            return item
