"""What a user's sampler gives, taken as it is needed and turned into arrays.

In: a sampler, or a batch_sampler. Out: its items; the records and occurrences that they stand for. Nothing is asked of
it before the first item is needed, nor behind its end.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError, WorkerError
from fastdata.order import numbered

# The occurrence of a record that came without one: it is counted.
_COUNTED = -1
# Ctrl-C is seen at least this often: one that comes just before a wait begins is seen only when the wait ends.
_LOOK_SECONDS = 0.1
# Records, and the occurrences that they were given with.
Given = tuple[NDArray[np.int64], NDArray[np.int64]]


class Items:
    """What a sampler gives, as many at a time as are asked for.

    Args:
        sampler: the sampler.
        epoch: the epoch, which its `set_epoch` is called with.
        timeout: how long it may take to the next item; 0: for ever.
        name: what errors call it, and what one item is.
    """

    def __init__(self, sampler: Iterable[Any], epoch: int, timeout: float, name: tuple[str, str]) -> None:
        self.sampler = sampler
        self._epoch, self._timeout, self._name = epoch, timeout, name
        self._items: Iterator[Any] | None = None
        self._ended = False
        self._latest = 0.0

    def take(self, most: int) -> list[Any]:
        """The next ones, fewer than asked for at the end only.

        Raises:
            WorkerError: one took longer than the timeout.
        """
        if self._ended:
            return []
        found = self._in_time(most) if self._timeout else list(islice(self._started(), most))
        self._ended = len(found) < most
        return found

    def _started(self) -> Iterator[Any]:
        if self._items is None:
            set_epoch = getattr(self.sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(self._epoch)
            self._items = iter(self.sampler)
        return self._items

    def _in_time(self, most: int) -> list[Any]:
        """The same in a thread, where a sampler that gives nothing can be left; this one waits all the while."""
        found: list[Any] = []
        failures: list[BaseException] = []
        done = threading.Event()
        self._latest = time.monotonic()

        def draw() -> None:
            try:
                for item in islice(self._started(), most):
                    found.append(item)
                    self._latest = time.monotonic()
            except BaseException as failure:
                failures.append(failure)
            done.set()

        threading.Thread(target=draw, name="fastdata-sampler", daemon=True).start()
        while not done.wait(max(0.0, min(_LOOK_SECONDS, self._latest + self._timeout - time.monotonic()))):
            if time.monotonic() - self._latest >= self._timeout:
                name, item = self._name
                raise WorkerError(f"{name} gave no {item} within timeout={self._timeout} seconds")
        if failures:
            raise failures.pop()
        return found


class Occurrences:
    """Counts how often each of `count` records has come in an epoch."""

    def __init__(self, count: int) -> None:
        self._seen = np.zeros(count, np.uint32)  # pages are taken when they are used

    def of(self, records: NDArray[np.int64], given: NDArray[np.int64]) -> NDArray[np.int64]:
        """The occurrences of the next records: as they were given, the others counted."""
        counted = given == _COUNTED
        plain = records[counted]
        occurrences = given.copy()
        occurrences[counted] = numbered(plain) + self._seen[plain]
        self._seen[plain] = occurrences[counted] + 1  # where a record comes twice, the last and highest one stays
        return occurrences


def length_of(sampler: Iterable[Any]) -> int | None:
    """The length that a sampler has, None where it has none."""
    try:
        return len(sampler)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # torch's own base class raises one or the other
        return None
    except (OverflowError, ValueError):  # longer than Python can say, or negative
        return None


def parsed(items: Sequence[Any], count: int, name: str) -> Given:
    """Records and occurrences from what a sampler gave, of a data set of `count` records.

    Raises:
        OptionError: one of them is no index and no (index, occurrence) tuple, or names no record.
    """
    try:
        found = np.fromiter(map(operator.index, items), np.int64, len(items)), _counted(len(items))
    except (TypeError, OverflowError):  # tuples, or what is no index
        pairs = np.array([_pair(item, name) for item in items], np.int64)
        found = pairs[:, 0], pairs[:, 1]
    low, high = found[0].min(), found[0].max()
    if low < 0 or high >= count:
        raise OptionError(f"{name} gave indices {low} to {high}; they must be integers from 0 to {count - 1}")
    return found


def joined(parts: Sequence[Given]) -> Given:
    """Records and occurrences, one part behind the other."""
    records = np.concatenate([part for part, _ in parts])
    if all(given.strides == (0,) or not len(given) for _, given in parts):
        return records, _counted(len(records))
    return records, np.concatenate([given for _, given in parts])


def _counted(count: int) -> NDArray[np.int64]:
    """For records that came without an occurrence; takes no memory."""
    return np.broadcast_to(np.int64(_COUNTED), count)


def _pair(item: Any, name: str) -> tuple[int, int]:
    record, occurrence = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
    try:
        pair = operator.index(record), _COUNTED if occurrence is None else operator.index(occurrence)
    except TypeError:
        pair = None
    if pair is None or not -(1 << 63) <= pair[0] < 1 << 63 or not (occurrence is None or 0 <= pair[1] < 1 << 62):
        hint = " in its lists" if name == "batch_sampler" else "; what gives lists of these is a batch_sampler"
        raise OptionError(
            f"{name} gave {item!r:.200}: it must give indices, or (index, occurrence) tuples of integers{hint}"
        )
    return pair
