"""Draws: the batches of an epoch that a user's sampler gives, for one rank.

In: a sampler, which gives records, or (record, occurrence) tuples. Out: the same as other schedules give. A sampler
that tells a length is drawn to that length when the epoch begins, as far as that takes little memory; anything beyond,
and samplers without a length, batch by batch. The epoch ends when the sampler ends.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError, WorkerError
from fastdata.loader.schedule import Wanted, split_of
from fastdata.loader.settings import Settings
from fastdata.order import numbered

# The longest sampler that is drawn when the epoch begins: 128 MB of numbers. Longer ones, and those that tell no
# length, may well be endless.
_MOST_AT_ONCE = 1 << 24
# So many are taken from a sampler before they become an array: Python's integers take five times an array's memory.
_LOT = 1 << 16
# What a replacement is chosen from where a sampler is drawn batch by batch: large enough to find a good record among
# many damaged ones, small enough to be copied for each batch.
_RECENT = 4096
# The occurrence of a record that the sampler gave without one: it is counted.
_COUNTED = -1
_NONE = np.empty(0, np.int64)


class Drawn:
    """The batches of one epoch on this rank, from its sampler.

    Args:
        settings: the loader's.
        count: the records of its data set.
        epoch: the epoch, which the sampler's `set_epoch` is told.
        first: the batch to begin with: those before it are drawn, too, since later ones follow from them.

    Raises:
        OptionError: the sampler gives nothing, or what is no record here.
        WorkerError: it took longer than the loader's `timeout` between two indices.
    """

    def __init__(self, settings: Settings, count: int, epoch: int, first: int = 0) -> None:
        assert settings.sampler is not None
        self.epoch, self.first = epoch, first
        self._settings, self._count = settings, count
        self._source = _Source(settings.sampler, epoch, settings.timeout)
        self._seen = np.zeros(count, np.uint32)  # how often each record was drawn; pages are taken when they are used
        self._number = self._samples = 0
        self._ended = False
        self._records = self._given = _NONE  # drawn, and not yet in a batch
        self._pool = _NONE
        length = length_of(settings.sampler)
        if length is not None and length <= _MOST_AT_ONCE:
            split_of(settings, length)
            self._pool = self._draw(length)
            if not len(self._pool):
                raise OptionError("sampler gave no indices")

    def __len__(self) -> int:
        length = length_of(self._source.sampler)
        if length is None:
            raise TypeError(f"{type(self._source.sampler).__name__} has no length")
        return split_of(self._settings, length).batches

    @property
    def total(self) -> int | None:
        return self._number if self._ended else None

    def batch(self, number: int) -> Wanted | None:
        wanted = self._next()
        while wanted is not None and self._number <= number:
            wanted = self._next()
        return wanted

    def consumed(self, batches: int) -> int:
        return min(batches * self._settings.batch_size, self._samples)

    def moved(self, epoch: int) -> Drawn | None:
        """The same draws, where the sampler gives them for whatever epoch; only what is made of them is another."""
        if hasattr(self._source.sampler, "set_epoch") or self._number:
            return None
        self.epoch, self.first = epoch, 0
        return self

    def _next(self) -> Wanted | None:
        """The next batch; None at the end."""
        if self._ended:
            return None
        size = self._settings.batch_size
        if len(self._records) < size:
            self._pool = np.concatenate((self._pool[-_RECENT:], self._draw(size - len(self._records))))[-_RECENT:]
        records, given = self._records[:size], self._given[:size]
        if not len(records) or (self._settings.drop_last and len(records) < size):
            self._ended = True
            if not self._number:
                raise OptionError(f"sampler gave {len(records) or 'no'} indices, which make no batch of {size}")
            return None
        self._records, self._given = self._records[size:], self._given[size:]
        start = self._samples
        self._number, self._samples = self._number + 1, start + len(records)
        return Wanted(records, self._numbered(records, given), range(start, self._samples), self._pool)

    def _numbered(self, records: NDArray[np.int64], given: NDArray[np.int64]) -> NDArray[np.int64]:
        """The occurrences: as the sampler gave them, the others counted."""
        counted = given == _COUNTED
        plain = records[counted]
        occurrences = given.copy()
        occurrences[counted] = numbered(plain) + self._seen[plain]
        self._seen[plain] = occurrences[counted] + 1  # where a record comes twice, the last and highest one stays
        return occurrences

    def _draw(self, most: int) -> NDArray[np.int64]:
        """Draw up to so many indices, behind those that are there."""
        drawn, there = [(self._records, self._given)], len(self._records)
        while most > 0 and (items := self._source.take(min(most, _LOT))):
            drawn.append(_parsed(items))
            self._check(drawn[-1][0])
            most -= len(items)
        self._records, self._given = _joined(drawn)
        return self._records[there:]

    def _check(self, records: NDArray[np.int64]) -> None:
        if records.min() < 0 or records.max() >= self._count:
            raise OptionError(
                f"sampler gave indices {records.min()} .. {records.max()}; they must lie in 0 .. {self._count - 1}"
            )


class _Source:
    """What a sampler gives, taken as many at a time as are asked for. Nothing is asked of it before that."""

    def __init__(self, sampler: Iterable[Any], epoch: int, timeout: float) -> None:
        self.sampler = sampler
        self._epoch, self._timeout = epoch, timeout
        self._items: Iterator[Any] | None = None
        self._ended = False
        self._heard = 0.0

    def take(self, most: int) -> list[Any]:
        """The next ones, fewer than asked for at the end only. Behind its end nothing is asked of the sampler."""
        if self._ended:
            return []
        found = self._in_time(most) if self._timeout else list(islice(self._begun(), most))
        self._ended = len(found) < most
        return found

    def _begun(self) -> Iterator[Any]:
        if self._items is None:
            tell = getattr(self.sampler, "set_epoch", None)
            if tell is not None:
                tell(self._epoch)
            self._items = iter(self.sampler)
        return self._items

    def _in_time(self, most: int) -> list[Any]:
        """The same in a thread, where a sampler that gives nothing can be left; this one waits all the while."""
        found: list[Any] = []
        failures: list[BaseException] = []
        done = threading.Event()
        self._heard = time.monotonic()

        def draw() -> None:
            try:
                for item in islice(self._begun(), most):
                    found.append(item)
                    self._heard = time.monotonic()
            except BaseException as failure:
                failures.append(failure)
            done.set()

        threading.Thread(target=draw, name="fastdata-sampler", daemon=True).start()
        while not done.wait(max(0.0, self._heard + self._timeout - time.monotonic())):
            if time.monotonic() - self._heard >= self._timeout:
                raise WorkerError(f"sampler gave no index within timeout={self._timeout} seconds")
        if failures:
            raise failures.pop()
        return found


def length_of(sampler: Iterable[Any]) -> int | None:
    """What a sampler tells of its length, None where it tells nothing."""
    try:
        return len(sampler)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # torch's own base class raises one or the other
        return None
    except (OverflowError, ValueError):  # longer than Python can say, or negative
        return None


def _parsed(items: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Records and occurrences of what a sampler gave."""
    try:
        return np.fromiter(map(operator.index, items), np.int64, len(items)), _counted(len(items))
    except (TypeError, OverflowError):
        pass  # tuples, or what is no index
    pairs = np.array([_pair(item) for item in items], np.int64)
    return pairs[:, 0], pairs[:, 1]


def _counted(count: int) -> NDArray[np.int64]:
    """For records that came without an occurrence; takes no memory."""
    return np.broadcast_to(np.int64(_COUNTED), count)


def _joined(parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Records and occurrences, one part behind the other."""
    records = np.concatenate([part for part, _ in parts])
    if all(given.strides == (0,) or not len(given) for _, given in parts):
        return records, _counted(len(records))
    return records, np.concatenate([given for _, given in parts])


def _pair(item: Any) -> tuple[int, int]:
    record, occurrence = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
    try:
        pair = operator.index(record), _COUNTED if occurrence is None else operator.index(occurrence)
    except TypeError:
        pair = None
    if pair is None or not -(1 << 63) <= pair[0] < 1 << 63 or not (occurrence is None or 0 <= pair[1] < 1 << 62):
        raise OptionError(
            f"sampler gave {item!r:.200}: it must give indices, or (index, occurrence) tuples of integers; of torch's "
            "samplers give one of single samples, and batch_size"
        )
    return pair
