"""Schedule: which samples make batch k of an epoch on this rank, and where a run stood.

In: settings and an epoch. Out: indices. Everything is a pure function of (seed, epoch); only the main process knows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError
from fastdata.loader.settings import Settings, integer
from fastdata.order import Split, permutation
from fastdata.seeding import key

# The stream of keys (`fastdata.seeding`) that chooses replacements for samples that failed.
_REPLACEMENTS = 5
_STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of one epoch.

    Attributes:
        epoch: its number.
        order: the records of the epoch in order: of all ranks together, or of this rank by its sampler.
        split: how positions in it are divided.
        rank: whose batches these are.
        seed: for replacements.
    """

    epoch: int
    order: NDArray[np.int64]
    split: Split
    rank: int
    seed: int

    def __len__(self) -> int:
        return self.split.batches

    def batch(self, number: int) -> NDArray[np.int64]:
        """The records of a batch; a fresh array."""
        start, stop = self.split.span(self.rank, number)
        if stop <= len(self.order):
            return self.order[start:stop].copy()
        return self.order[np.arange(start, stop) % len(self.order)]

    def replacement(self, number: int, row: int, attempt: int) -> int:
        """The record that takes the place of one that failed: a function of seed, epoch, position and attempt."""
        position = self.split.span(self.rank, number)[0] + row
        return int(self.order[key(self.seed, _REPLACEMENTS, self.epoch, position, attempt) % len(self.order)])


def split_of(settings: Settings, count: int) -> Split:
    """How an epoch of `count` samples is divided.

    Raises:
        OptionError: a rank would get nothing.
    """
    world_size = 1 if settings.sampler is not None else settings.world.size
    split = Split(count, world_size, settings.batch_size, settings.drop_last)
    split.check("DataLoader")
    return split


def schedule(settings: Settings, count: int, epoch: int) -> Schedule:
    """The batches of an epoch, for a data set of `count` records."""
    if settings.sampler is not None:
        order = _sampled(settings.sampler, count, epoch)
    else:
        order = np.arange(count, dtype=np.int64) if settings.indices is None else settings.indices
        if settings.shuffle:
            order = order[permutation(settings.seed, epoch, 0, len(order))]
    rank = 0 if settings.sampler is not None else settings.world.rank
    return Schedule(epoch, order, split_of(settings, len(order)), rank, settings.seed)


def _sampled(sampler: Iterable[int], count: int, epoch: int) -> NDArray[np.int64]:
    if hasattr(sampler, "set_epoch"):
        cast("Any", sampler).set_epoch(epoch)
    order = np.fromiter((int(index) for index in sampler), np.int64)
    if not len(order):
        raise OptionError("sampler gave no indices")
    if order.min() < 0 or order.max() >= count:
        raise OptionError(f"sampler gave indices {order.min()} .. {order.max()}; they must lie in 0 .. {count - 1}")
    return order


def _order(settings: Settings, fingerprint: str, samples: int) -> dict[str, int | str]:
    """What the order of the samples depends on; that a sampler gives the same again is the caller's to see to."""
    chosen = settings.indices
    return {
        "version": _STATE_VERSION,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
        "samples": samples,
        "sampler": settings.sampler is not None,
        "indices": "" if chosen is None else hashlib.sha256(chosen.tobytes()).hexdigest(),
        "fingerprint": fingerprint,
    }


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands: batches handed out of an epoch, on every rank."""

    epoch: int = 0
    batches: int = 0

    def state(self, settings: Settings, fingerprint: str, samples: int) -> dict[str, int | str]:
        """As plain JSON values."""
        consumed = self.batches * settings.global_batch
        return _order(settings, fingerprint, samples) | {"epoch": self.epoch, "consumed": consumed}

    @classmethod
    def load(cls, state: Any, settings: Settings, fingerprint: str, samples: int) -> Position:
        """The position that a state stands for, with these settings.

        Raises:
            OptionError: the state is of other data, another order, or does not fall between two global batches.
        """
        wanted = _order(settings, fingerprint, samples)
        if not isinstance(state, dict) or not {*wanted, "epoch", "consumed"} <= set(state):
            raise OptionError(f"not a state of fastdata.DataLoader: {state!r:.200}")
        for name, here in wanted.items():
            if state[name] != here:
                raise OptionError(
                    f"the state has {name} {state[name]!r}, this loader {here!r}: resume with the same data, seed, "
                    "shuffle, indices and sampler"
                )
        epoch, consumed = (integer(f"the state's {name}", state[name], 0) for name in ("epoch", "consumed"))
        batches, rest = divmod(consumed, settings.global_batch)
        if rest:
            raise OptionError(
                f"{consumed} samples were consumed, which is no multiple of batch_size * world_size = "
                f"{settings.global_batch}: resume with the same global batch"
            )
        total = split_of(settings, samples).batches
        if batches > total:
            raise OptionError(f"{consumed} samples were consumed, {batches} batches; an epoch has {total} here")
        return cls(epoch, batches) if batches < total else cls(epoch + 1)
