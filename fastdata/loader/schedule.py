"""Schedule: which samples make batch k of an epoch on this rank.

In: settings and an epoch. Out: records and occurrences. Where the loader knows the order itself, everything is a pure
function of (seed, epoch), for any workers and ranks; `fastdata.loader.draws` has what a user's sampler gives. Only the
main process knows schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.loader.sampled import length_of
from fastdata.loader.settings import Settings
from fastdata.order import Split, numbered, permutation, stand_in


class Wanted(NamedTuple):
    """The samples of one batch.

    Attributes:
        records: their numbers.
        occurrences: how many times each has come before in the epoch.
        positions: where they stand in the epoch: of all ranks together, or of this rank by its sampler.
        pool: the records that replacements are chosen from.
    """

    records: NDArray[np.int64]
    occurrences: NDArray[np.int64]
    positions: range
    pool: NDArray[np.int64]

    def replacement(self, seed: int, epoch: int, row: int, attempt: int) -> tuple[int, int]:
        """The record, and its occurrence, in the place of one that failed: by seed, epoch, position and attempt."""
        chosen, occurrence = stand_in(seed, epoch, self.positions[row], attempt, len(self.pool))
        return int(self.pool[chosen]), occurrence


class Schedule(Protocol):
    """The batches of one epoch on this rank.

    Attributes:
        epoch: its number.
        first: the batch to begin with.
    """

    @property
    def epoch(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def total(self) -> int | None:
        """How many batches there are, counted from the epoch's first; None as long as that is not known."""

    def __len__(self) -> int:
        """The same, as a loader's length tells it beforehand."""

    def batch(self, number: int) -> Wanted | None:
        """A batch, asked for in order from `first` on; None behind the last one."""

    def consumed(self, batches: int) -> int:
        """How many samples of the epoch so many batches hold, on all ranks together."""

    def moved(self, epoch: int) -> Schedule | None:
        """This for another epoch, from its start; None where that is to be made anew."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What is left of an epoch whose last batch was handed out: nothing."""

    epoch: int
    first: int = 0
    total: int = 0

    def __len__(self) -> int:
        return 0

    def batch(self, number: int) -> Wanted | None:  # noqa: ARG002
        return None

    def consumed(self, batches: int) -> int:
        return batches

    def moved(self, epoch: int) -> Schedule | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class Planned:
    """The batches of an epoch whose order the loader knows.

    Attributes:
        order: the records in order, of all ranks together, each standing for `repeats` samples side by side.
        copies: how many times each of these has come before in the loader's `indices`; None where none comes twice.
        split: how the samples are divided.
        rank: whose batches these are.
    """

    epoch: int
    first: int
    order: NDArray[np.int64]
    copies: NDArray[np.int64] | None
    repeats: int
    split: Split
    rank: int

    @property
    def total(self) -> int:
        return self.split.batches_of(self.rank)

    def __len__(self) -> int:
        return self.total

    def batch(self, number: int) -> Wanted | None:
        if number >= self.total:
            return None
        positions = self.split.positions(self.rank, number)
        if self.repeats == 1 and self.copies is None and positions[-1] < len(self.order):
            records = self.order[positions.start : positions.stop]
            return Wanted(records, np.zeros(len(records), np.int64), positions, self.order)
        where = np.asarray(positions)
        records, occurrences = self._at(where % self.split.count)
        over = where >= self.split.count
        if over.any():
            padding = self._padding()
            occurrences[over] = padding[where[over] - self.split.count]
        return Wanted(records, occurrences, positions, self.order)

    def _at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Records and occurrences at positions of the epoch."""
        places, repeat = np.divmod(positions, self.repeats)
        copies = 0 if self.copies is None else self.copies[places] * self.repeats
        return self.order[places], copies + repeat

    def _padding(self) -> NDArray[np.int64]:
        """The occurrences of the epoch's first samples where they come again behind its end: the next ones of each.

        So many as there are ranks, which is more than are ever needed.
        """
        records = self.order[np.arange(self.split.world_size) % self.split.count // self.repeats]
        often = np.full(len(records), self.repeats)
        if self.copies is not None:
            known, counts = np.unique(self.order[np.isin(self.order, records)], return_counts=True)
            often *= counts[np.searchsorted(known, records)]
        return often + numbered(records)

    def consumed(self, batches: int) -> int:
        return min(batches * self.split.world_size * (self.split.batch_size or 0), self.split.count)

    def moved(self, epoch: int) -> Schedule | None:  # noqa: ARG002
        return None


def samples_of(settings: Settings, count: int) -> int | None:
    """Samples of an epoch of a data set of `count` records, on all ranks together.

    With a sampler or batch_sampler what it gives, on this rank; None where it has no length.
    """
    if settings.batch_sampler is not None:
        return length_of(settings.batch_sampler)
    if settings.sampler is not None:
        return length_of(settings.sampler)
    return (count if settings.indices is None else len(settings.indices)) * settings.repeats


def split_of(settings: Settings, count: int) -> Split:
    """How an epoch of `count` samples (or batches, of a batch_sampler) is divided.

    Raises:
        OptionError: all ranks would get nothing.
    """
    split = Split(
        count, settings.ranks, settings.split_size, settings.drop_last, settings.pad, settings.even,
        dealt=settings.repeats > 1,
    )  # fmt: skip
    split.check("DataLoader")
    return split


def planned(settings: Settings, count: int, epoch: int, first: int = 0) -> Planned:
    """The batches of an epoch, for a data set of `count` records."""
    order = np.arange(count, dtype=np.int64) if settings.indices is None else settings.indices
    copies = settings.copies
    if settings.shuffle:
        where = permutation(settings.seed, epoch, 0, len(order))
        order, copies = order[where], None if copies is None else copies[where]
    split = split_of(settings, len(order) * settings.repeats)
    return Planned(epoch, first, order, copies, settings.repeats, split, settings.world.rank)
