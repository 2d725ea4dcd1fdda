"""Make items one ahead of their consumer, and keep the loader's state as of the consumer's last item."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
_END = object()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, each only once the next one has been made.

    An exception of `items` is raised in its turn, after the items before it; only exceptions that stop the program
    (such as KeyboardInterrupt) are raised at once.
    """
    current = next(items, _END)
    while current is not _END:
        # A list, since a variable that holds an exception makes a reference cycle with this frame, which would keep the
        # loader's workers alive until the next garbage collection.
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
    """The state of a `fastdata.DataLoader` after each batch, since the consumer is some batches behind.

    Other loaders are not asked for a state: torchdata's would have to ask every worker.
    """

    def __init__(self, loader: Any) -> None:
        ours = sys.modules.get("fastdata.loader.loader")
        self._loader = loader if ours is not None and isinstance(loader, ours.DataLoader) else None
        self._ahead: deque[Any] = deque()
        self._delivered: Any = None

    def recording(self, batches: Iterator[T]) -> Iterator[T]:
        """Yield the same batches; record the state after each of them, and at their end."""
        return batches if self._loader is None else _Recording(batches, self.record)

    def record(self) -> None:
        """Record the state after a batch of the loader, or at their end."""
        if self._loader is not None:
            self._ahead.append(self._loader.state_dict())

    def deliver(self) -> None:
        """Note that the consumer gets the oldest batch, or their end."""
        if self._ahead:
            self._delivered = self._ahead.popleft()

    def as_delivered(self, now: Any) -> Any:
        """The state as of the last delivered batch, or the loader's state `now` if it was replaced meanwhile."""
        latest = self._ahead[-1] if self._ahead else self._delivered
        return self._delivered if self._delivered is not None and now == latest else now


class _Recording(Generic[T]):
    """The same items, without a reference to any of them, with a call after each and after the last."""

    def __init__(self, items: Iterator[T], record: Callable[[], None]) -> None:
        self._items, self._record = items, record

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._items)
        finally:
            self._record()
