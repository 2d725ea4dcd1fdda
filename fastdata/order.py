"""Order: the order of samples in an epoch, and how it is divided among ranks, workers and batches.

In: counts and (seed, epoch). Out: positions and indices. Everything is arithmetic on the positions 0 to count - 1 of
one global order. All ranks and workers compute the same order, each only the part that it needs; no random generator
is used, so the order is the same on every machine and with every version of numpy, and a position in it is an integer.

The algorithms, for reproducing them elsewhere:

- `permutation`: numbers, sorted by their 64-bit keys (`fastdata.seeding.keys`), which are distinct.
- `EpochOrder`, with a buffer size: the records are cut into runs of consecutive ones, and the runs permuted
  (stream 1). Of this sequence, windows of `buffer_size` positions are permuted (stream 2), and then windows that lie
  half a window further (stream 3), so that samples also pass from one window to the next. It reads in runs, shuffles
  as a shuffle buffer does, and finds the sample at any position from two windows, without an array of all positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastdata.checks import choice, flag
from fastdata.errors import OptionError
from fastdata.seeding import key, keys

# How all ranks get equally many samples: repeat the epoch's first ones, or leave out the rest.
Even = Literal["pad", "cut"]
# The streams of keys (`fastdata.seeding`) that orders use; stream 0 is for the augmentation of a sample.
RUNS, WINDOWS, SHIFTED = 1, 2, 3
# The stream of keys that chooses replacements for samples that failed.
_REPLACEMENTS = 5
# Replacements count as occurrences from here on, by the position that they fill: more than an epoch can have, so that
# a replacement is not augmented like the same record at its own position.
_FIRST_REPLACEMENT = 1 << 62
# A window holds at least this many runs, so that a batch does not consist of a few neighbours (of the same class).
_RUNS_IN_WINDOW = 128
# 64 records of 30 kB are 2 MB: what a disk or network file system reads in about the time that it takes to seek.
_LONGEST_RUN = 64
# 8 MB of run numbers in each worker; larger data sets get longer runs instead.
_MOST_RUNS = 1 << 20
# With smaller windows, calls would cost more than sorting; shuffling more than asked for does no harm.
_SMALLEST_WINDOW = 256


def permutation(seed: int, epoch: int, start: int, stop: int, stream: int = RUNS) -> NDArray[np.int64]:
    """The numbers `start` to `stop - 1` in a random order that depends on the arguments only."""
    drawn = keys(seed, epoch, np.arange(start, stop, dtype=np.int64), stream=stream)
    return start + np.argsort(drawn, kind="stable").astype(np.int64, copy=False)


def stand_in(seed: int, epoch: int, position: int, attempt: int, count: int) -> tuple[int, int]:
    """Which of `count` records replaces a sample that failed at this position, and its occurrence there."""
    return key(seed, _REPLACEMENTS, epoch, position, attempt) % count, _FIRST_REPLACEMENT + position


def numbered(records: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each item of a sequence of records, how often the same record comes before it.

    >>> numbered(np.array([7, 4, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    out = np.zeros(len(records), np.int64)
    order = np.argsort(records, kind="stable")
    ordered = records[order]
    again = ordered[1:] == ordered[:-1]
    if again.any():
        places = np.arange(len(records))
        first = places.copy()
        first[1:][again] = 0
        out[order] = places - np.maximum.accumulate(first)
    return out


def run_length(count: int, buffer_size: int) -> int:
    """How many consecutive records are read together in a shuffled epoch."""
    return max(1, min(_LONGEST_RUN, buffer_size // _RUNS_IN_WINDOW), -(-count // _MOST_RUNS))


class EpochOrder:
    """The order of one epoch.

    Args:
        count: the number of samples, at least 1.
        seed: any integer.
        epoch: the number of the epoch.
        buffer_size: how many samples are mixed (at least 256 are); 0 leaves them in the order of the records.
    """

    def __init__(self, count: int, seed: int = 0, epoch: int = 0, buffer_size: int = 0) -> None:
        self.count, self.seed, self.epoch = count, seed, epoch
        self._size = max(buffer_size, _SMALLEST_WINDOW) if buffer_size else 0
        self._window: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))
        if buffer_size:
            self._run = run_length(count, buffer_size)
            self._runs = permutation(seed, epoch, 0, -(-count // self._run))
            # the last run may be short; from behind it on, positions are shifted by what it lacks
            self._lack = len(self._runs) * self._run - count
            self._short = (int(np.flatnonzero(self._runs == len(self._runs) - 1)[0]) + 1) * self._run - self._lack

    def indices(self, start: int, stop: int) -> NDArray[np.int64]:
        """The samples at positions start .. stop - 1; behind the last position the first ones follow again."""
        positions = np.arange(start, stop, dtype=np.int64) % self.count
        if not self._size:
            return positions
        half = self._size // 2
        numbers = (positions + half) // self._size
        out = np.empty_like(positions)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            first = max(0, number * self._size - half)
            out[here] = self._shifted_window(number)[positions[here] - first]
        return out

    def _shifted_window(self, number: int) -> NDArray[np.int64]:
        """The records of one window of the second mixing; the latest is kept, since epochs are read in order."""
        if self._window[0] != number:
            half = self._size // 2
            first = max(0, number * self._size - half)
            stop = min(self.count, (number + 1) * self._size - half)
            positions = permutation(self.seed, self.epoch, first, stop, SHIFTED)
            for plain in range(first // self._size, (stop - 1) // self._size + 1):
                low = plain * self._size
                high = min(self.count, low + self._size)
                here = (positions >= low) & (positions < high)
                positions[here] = permutation(self.seed, self.epoch, low, high, WINDOWS)[positions[here] - low]
            self._window = (number, self._records(positions))
        return self._window[1]

    def _records(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The records at positions of the sequence of permuted runs."""
        slots = np.where(positions >= self._short, positions + self._lack, positions)
        records: NDArray[np.int64] = self._runs[slots // self._run] * self._run + slots % self._run
        return records


@dataclass(frozen=True, slots=True)
class Split:
    """How the positions of an epoch are divided among ranks.

    With `batch_size`, the k-th global batch is `batch_size * world_size` consecutive positions, and rank r takes the
    r-th part of it, or every `world_size`-th position (`dealt`): either way the union of the ranks' k-th batches is the
    same for any world size with the same global batch. Without `drop_last` the rest makes a last, smaller batch. It is
    padded with the epoch's first samples to a multiple of the world size (`pad`), or cut to one (`even="cut"`), so that
    all ranks get equally many; without `pad` it is divided as it is, and the ranks' last batches differ by a sample, or
    are missing. Without `batch_size` each rank takes one range of positions.

    >>> Split(count=23, world_size=2, batch_size=5).spans(rank=1)
    [(5, 10), (15, 20), (22, 24)]
    """

    count: int
    world_size: int = 1
    batch_size: int | None = None
    drop_last: bool = False
    pad: bool = True
    even: Even = "pad"
    dealt: bool = False

    @property
    def _full(self) -> int:
        return self.count // (self.world_size * self.batch_size) if self.batch_size else 0

    @property
    def _rest(self) -> int:
        """The number of positions after the full batches, of all ranks together."""
        return self.count - self._full * self.world_size * (self.batch_size or 0)

    def _last(self, rank: int) -> int:
        """How many of the positions after the full batches a rank takes."""
        if self.batch_size and self.drop_last:
            return 0
        share, over = divmod(self._rest, self.world_size)
        if self.pad and self.even == "cut":
            return share
        return share + (over > 0 if self.pad else rank < over)

    @property
    def batches(self) -> int:
        """The number of batches of a rank, or the largest if they differ (1 range without `batch_size`)."""
        return self.batches_of(0)

    @property
    def samples(self) -> int:
        """The number of samples of a rank, or the largest if they differ."""
        return self.samples_of(0)

    def batches_of(self, rank: int) -> int:
        """The number of batches of a rank; without `pad` not the same for all."""
        return self._full + (self._last(rank) > 0)

    def samples_of(self, rank: int) -> int:
        """The number of samples of a rank; without `pad` not the same for all."""
        return self._full * (self.batch_size or 0) + self._last(rank)

    def positions(self, rank: int, batch: int) -> range:
        """The positions of a rank's k-th batch; they may pass `count` (padding)."""
        whole = batch < self._full
        size = (self.batch_size or 0) if whole else self._last(rank)
        start = min(batch, self._full) * self.world_size * (self.batch_size or 0)
        if self.dealt:
            return range(start + rank, start + rank + size * self.world_size, self.world_size)
        share = size if whole or self.pad else self._rest // self.world_size
        start += rank * share + (0 if whole or self.pad else min(rank, self._rest % self.world_size))
        return range(start, start + size)

    def span(self, rank: int, batch: int) -> tuple[int, int]:
        """The (start, stop) of the positions of a rank's k-th batch, if they are not `dealt`."""
        positions = self.positions(rank, batch)
        return positions.start, positions.stop

    def spans(
        self, rank: int, worker: int = 0, workers: int = 1, *, start: int = 0, taken: int = 0
    ) -> list[tuple[int, int]]:
        """The positions that one worker of a rank reads: batches w, w + W, ..., or one part of the rank's range.

        So a DataLoader that asks its workers in turn gets the batches in order for any number of workers.

        Args:
            rank: the rank whose positions are divided.
            worker: the number of the worker.
            workers: the number of workers.
            start: how many batches (samples, without `batch_size`) of the rank to skip first.
            taken: how many of this worker's part to skip in addition.
        """
        if self.batch_size:
            first = start + worker + taken * workers
            return [self.span(rank, batch) for batch in range(first, self.batches_of(rank), workers)]
        first, stop = self.span(rank, 0)
        first = min(first + start, stop)
        low, high = ((stop - first) * part // workers for part in (worker, worker + 1))
        return [(first + low + taken, first + high)] if high > low + taken else []

    def check(self, where: str) -> None:
        """Refuse a division that leaves every rank without a batch.

        Raises:
            OptionError: it names the numbers of samples and ranks and the batch size.
        """
        if self.batches:
            return
        if not self.count:
            raise OptionError(f"{where}: there are no samples")
        batch = f", batch_size {self.batch_size}" if self.batch_size else ""
        way, out = 'even="cut"', 'pad=False instead of even="cut"'
        if self.drop_last:
            way, out = "drop_last=True", "a smaller batch_size, or drop_last=False"
        fewer = "fewer ranks, " if self.world_size > 1 else ""
        raise OptionError(
            f"{where}: {self.count} samples for {self.world_size} ranks{batch} leave every rank without a batch under "
            f"{way}; use {fewer}{out}"
        )


def check_end(*, batch_size: int | None, pad: object, even: object, drop_last: object) -> None:
    """Check that these options for the end of an epoch are valid together.

    Raises:
        OptionError: one of them is invalid, or two of them exclude each other.
    """
    choice("even", even, get_args(Even))
    if flag("drop_last", drop_last) and batch_size is None:
        raise OptionError("drop_last=True needs a batch_size: without one there is no last batch")
    if not flag("pad", pad) and even == "cut":
        raise OptionError('pad=False leaves no sample out, and even="cut" does: leave out one of the two')
    if not pad and drop_last:
        raise OptionError("pad=False leaves no sample out, and drop_last=True does: leave out one of the two")
