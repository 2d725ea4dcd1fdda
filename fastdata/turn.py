"""Turn: a lock for iterators that several threads may draw from, one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Generic, TypeVar

from fastdata.errors import LoadError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Turn:
    """A lock around `next`. A nested call raises an error instead of waiting; a forked child finds the lock free."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock, self._thread, self._process = threading.Lock(), -1, os.getpid()

    @property
    def mine(self) -> bool:
        """Whether this thread holds the lock."""
        return self._thread == threading.get_ident() and self._process == os.getpid()

    def take(self, seconds: float) -> bool:
        """Acquire the lock within this time and return whether it worked; False at once if this thread holds it."""
        if self.mine:
            return False
        if self._process != os.getpid():  # its holder is a thread of the parent
            self._reset()
        if not self._lock.acquire(timeout=seconds):
            return False
        self._thread = threading.get_ident()
        return True

    def give_back(self) -> None:
        self._thread = -1
        self._lock.release()

    def __enter__(self) -> None:
        if not self.take(-1):
            raise LoadError(
                "this iterator was asked for a batch while it was making one, by collate_fn, a transform or a signal "
                "handler: draw from it in the training loop only"
            )

    def __exit__(self, *_: object) -> None:
        self.give_back()


class InTurn(Generic[T]):
    """The items of a generator, for one thread at a time: a plain generator would raise in all others."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        self._items, self._turn = items, Turn()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        with self._turn:
            return next(self._items)

    def close(self) -> None:
        """Close the generator, once no other thread is in it."""
        with self._turn:
            self._items.close()
