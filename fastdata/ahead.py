"""Ahead: items made one ahead of their consumer, and the state of a loader as of what the consumer has had."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
_END = object()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each given only once the next one has been made.

    An exception of `items` is raised in its place, after the items before it; only what is meant to stop the program
    (KeyboardInterrupt and its like) is not held back.
    """
    current = next(items, _END)
    while current is not _END:
        # A list, since a variable that holds an exception makes a cycle with this frame, which would keep the loader's
        # workers alive until the next collection.
        failures: list[Exception] = []
        following: object = _END
        try:
            following = next(items, _END)
        except Exception as error:
            failures.append(error)
        yield cast(T, current)
        if failures:
            raise failures.pop()
        current = following


class Progress:
    """The state that a `fastdata.DataLoader` had as each batch came out of it, for the consumer is some batches behind.

    Of other loaders nothing is asked: for torchdata's, a state is a question to every worker.
    """

    def __init__(self, loader: Any) -> None:
        ours = sys.modules.get("fastdata.loader.loader")
        self._loader = loader if ours is not None and isinstance(loader, ours.DataLoader) else None
        self._ahead: deque[Any] = deque()
        self._handed: Any = None

    def noting(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches; the state is remembered as each one comes, and as their end comes."""
        return batches if self._loader is None else _Noting(batches, self.note)

    def note(self) -> None:
        """Something came out of the loader."""
        if self._loader is not None:
            self._ahead.append(self._loader.state_dict())

    def hand_over(self) -> None:
        """The consumer gets the oldest thing that came: a batch, or their end."""
        if self._ahead:
            self._handed = self._ahead.popleft()

    def behind(self, now: Any) -> Any:
        """The consumer's state, when the loader's is this; the loader's, where it has been set to another since."""
        latest = self._ahead[-1] if self._ahead else self._handed
        return self._handed if self._handed is not None and now == latest else now


class _Noting(Generic[T]):
    """The same items, none of which is held here, with a call behind each and behind the last."""

    def __init__(self, items: Iterator[T], note: Callable[[], None]) -> None:
        self._items, self._note = items, note

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._items)
        finally:
            self._note()
