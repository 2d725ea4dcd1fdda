"""Draws: the batches of an epoch that a user's sampler or batch_sampler gives, for one rank.

In: indices, or (index, occurrence) tuples, one by one or in lists. Out: the same as other schedules give. What has a
length is drawn to that length when the epoch begins, as far as that takes little memory; anything beyond, and what has
no length, batch by batch. The epoch ends when the sampler ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError
from fastdata.loader.sampled import Given, Items, Occurrences, joined, length_of, parsed
from fastdata.loader.schedule import Wanted, split_of
from fastdata.loader.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Self

# The longest sampler that is drawn when the epoch begins: 128 MB of numbers. Longer ones, and those without a length,
# may well be endless.
_MOST_AT_ONCE = 1 << 24
# So many are taken from a sampler before they become an array: Python's integers take five times an array's memory.
_LOT = 1 << 16
# What a replacement is chosen from where a sampler is drawn batch by batch: large enough to find a good record among
# many damaged ones, small enough to be copied for each batch.
_RECENT = 4096
_NONE = np.empty(0, np.int64)


class _Draws(ABC):
    """The batches of one epoch on this rank, from what the user gave.

    Args:
        settings: the loader's.
        items: what the user gave.
        count: the records of the data set.
        epoch: the number of the epoch.
        first: the batch to begin with: those before it are drawn, too, since later ones follow from them.
    """

    def __init__(self, settings: Settings, items: Items, count: int, epoch: int, first: int) -> None:
        self.epoch, self.first = epoch, first
        self._settings, self._items, self._count = settings, items, count
        self._occurrences = Occurrences(count)
        self._number = self._samples = 0
        self._ended = False
        self._pool = _NONE

    def __len__(self) -> int:
        sampler = self._items.sampler
        length = length_of(sampler)
        if length is None:
            raise TypeError(f"{type(sampler).__name__} has no length")
        return split_of(self._settings, length).batches

    @property
    def total(self) -> int | None:
        return self._number if self._ended else None

    @abstractmethod
    def consumed(self, batches: int) -> int: ...

    @abstractmethod
    def _following(self) -> Given | None:
        """What the next batch is made of; None at the end."""

    def batch(self, number: int) -> Wanted | None:
        wanted = self._next()
        while wanted is not None and self._number <= number:
            wanted = self._next()
        return wanted

    def moved(self, epoch: int) -> Self | None:
        """The same draws, where the sampler gives them for whatever epoch; only what is made of them is another."""
        if hasattr(self._items.sampler, "set_epoch") or self._number:
            return None
        self.epoch, self.first = epoch, 0
        return self

    def _next(self) -> Wanted | None:
        following = None if self._ended else self._following()
        if following is None:
            self._ended = True
            return None
        records, given = following
        start = self._samples
        self._number, self._samples = self._number + 1, start + len(records)
        return Wanted(records, self._occurrences.of(records, given), range(start, self._samples), self._pool)


class Drawn(_Draws):
    """The batches that a `sampler` gives.

    Raises:
        OptionError: the sampler gives nothing, or what is no record here.
        WorkerError: it took longer than the loader's `timeout` between two indices.
    """

    def __init__(self, settings: Settings, count: int, epoch: int, first: int = 0) -> None:
        assert settings.sampler is not None
        items = Items(settings.sampler, epoch, settings.timeout, ("sampler", "index"))
        super().__init__(settings, items, count, epoch, first)
        self._size = settings.split_size
        self._records = self._given = _NONE  # drawn, and not yet in a batch
        length = length_of(settings.sampler)
        if length is not None and length <= _MOST_AT_ONCE:
            split_of(settings, length)
            self._pool = self._draw(length)
            if not len(self._pool):
                raise OptionError("sampler gave no indices")

    def consumed(self, batches: int) -> int:
        return min(batches * self._size, self._samples)

    def _following(self) -> Given | None:
        size = self._size
        if len(self._records) < size:
            self._pool = _recent(self._pool, self._draw(size - len(self._records)))
        records, given = self._records[:size], self._given[:size]
        if not len(records) or (self._settings.drop_last and len(records) < size):
            if not self._number:
                raise OptionError(f"sampler gave {len(records) or 'no'} indices, which make no batch of {size}")
            return None
        self._records, self._given = self._records[size:], self._given[size:]
        return records, given

    def _draw(self, most: int) -> NDArray[np.int64]:
        """Draw up to so many indices, behind those that are there."""
        parts, there = [(self._records, self._given)], len(self._records)
        while most > 0 and (items := self._items.take(min(most, _LOT))):
            parts.append(parsed(items, self._count, "sampler"))
            most -= len(items)
        self._records, self._given = joined(parts)
        return self._records[there:]


class DrawnBatches(_Draws):
    """The batches that a `batch_sampler` gives. They are what is counted: nothing says how large they are.

    Raises:
        OptionError: it gives nothing, an empty batch, or what is no record here.
        WorkerError: it took longer than the loader's `timeout` between two batches.
    """

    def __init__(self, settings: Settings, count: int, epoch: int, first: int = 0) -> None:
        assert settings.batch_sampler is not None
        items = Items(settings.batch_sampler, epoch, settings.timeout, ("batch_sampler", "batch"))
        super().__init__(settings, items, count, epoch, first)
        self._batches: deque[Given] = deque()  # drawn, and not yet asked for
        length = length_of(settings.batch_sampler)
        if length is not None:
            split_of(settings, length)
            self._draw(length)

    def consumed(self, batches: int) -> int:
        return batches

    def _following(self) -> Given | None:
        if not self._batches and (items := self._items.take(1)):
            self._batches.append(self._parsed(items[0]))
            self._pool = _recent(self._pool, self._batches[0][0])
        if not self._batches and not self._number:
            raise OptionError("batch_sampler gave no batches")
        return self._batches.popleft() if self._batches else None

    def _draw(self, most: int) -> None:
        """Draw so many batches at once, as far as they take little memory."""
        samples = 0
        while len(self._batches) < most and samples <= _MOST_AT_ONCE and (items := self._items.take(1)):
            self._batches.append(self._parsed(items[0]))
            samples += len(self._batches[-1][0])
        self._pool = np.concatenate([_NONE, *(records for records, _ in self._batches)])

    def _parsed(self, batch: Any) -> Given:
        try:
            items = None if isinstance(batch, str | bytes) else list(batch)
        except TypeError:
            items = None
        if not items:
            raise OptionError(f"batch_sampler gave {batch!r:.200}: it must give lists of at least one index")
        return parsed(items, self._count, "batch_sampler")


def drawn(settings: Settings, count: int, epoch: int, first: int = 0) -> Drawn | DrawnBatches:
    """The batches of an epoch, for a data set of `count` records."""
    make = Drawn if settings.batch_sampler is None else DrawnBatches
    return make(settings, count, epoch, first)


def _recent(pool: NDArray[np.int64], drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((pool[-_RECENT:], drawn))[-_RECENT:]
