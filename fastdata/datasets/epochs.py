"""EpochLedger: the epochs of a stream count themselves, in the main process and in DataLoader workers alike.

A DataLoader gives its workers copies of the data set, may throw the workers away after each epoch or keep them, and
calls `iter` in each of them. All workers of one round must agree on the epoch, the next round must get the next one,
and `set_epoch`, called in the main process, must reach workers that live already. So the count is kept in a few pages
of shared memory that all copies of a stream hold:

- for each *owner* (the process that iterates over the stream or over a DataLoader) the number of its next epoch;
- the latest *rounds*: owner, base seed (which a DataLoader draws once and gives to all its workers), the how-manieth
  `iter` of these workers it is, the number of workers, the epoch, and which workers have joined.

A worker joins the latest round that fits and that it is not in, or else opens one with its owner's next epoch. Ranks
started with one stream are owners of their own, so each counts for itself.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import context
from typing import Any

from fastdata.errors import OptionError
from fastdata.sharedmem import SharedBlock

# Ranks of one machine that share a ledger; beyond, the oldest is forgotten and would start from the first epoch again.
_OWNERS = 256
# A round is needed until its last worker has started; nobody has this many loaders starting at a time.
_ROUNDS = 64
_MOST_WORKERS = 1024  # bits for workers in a round

# 64-bit words: first epoch, owners so far, rounds so far; owners (pid, next epoch); rounds
_FIRST, _OWNERS_SEEN, _ROUNDS_SEEN, _TABLE = 0, 1, 2, 3
_ROUND_TABLE = _TABLE + 2 * _OWNERS
_NAMES = 4  # words that say which round it is: owner, base seed, ordinal, workers
_EPOCH = _NAMES
_BITS = _NAMES + 1
_ROUND = _BITS + _MOST_WORKERS // 64
_WORDS = _ROUND_TABLE + _ROUND * _ROUNDS


class EpochLedger:
    """Hands out epoch numbers, from `first` on.

    Args:
        first: the first epoch's number.
    """

    def __init__(self, first: int = 0) -> None:
        self._adopt(SharedBlock(8 * _WORDS))
        with self._block.locked() as view, view.cast("q") as words:
            words[_FIRST] = first

    def _adopt(self, block: SharedBlock) -> None:
        self._block = block
        self._named: int | None = None
        self._iterations: dict[tuple[int, int], int] = {}

    def claim(self) -> int:
        """The epoch of an iteration that begins now."""
        if self._named is not None:
            epoch, self._named = self._named, None
            return epoch
        info = _worker_info()
        if info is None:
            with self._block.locked() as view, view.cast("q") as words:
                return _next(words, os.getpid())
        if info.num_workers > _MOST_WORKERS:
            raise OptionError(f"num_workers={info.num_workers}: a stream serves at most {_MOST_WORKERS} workers")
        owner, base = _owner(), int(info.seed) - int(info.id)
        ordinal = self._iterations.get((owner, base), 0)
        self._iterations[owner, base] = ordinal + 1
        with self._block.locked() as view, view.cast("q") as words:
            return _join(words, (owner, base, ordinal, int(info.num_workers)), int(info.id))

    def name_next(self, epoch: int) -> None:
        """Give the next epoch its number; those after it count on from there."""
        if _worker_info() is not None:
            self._named = epoch  # a data set around ours that passes the epoch on in each of its workers
            return
        with self._block.locked() as view, view.cast("q") as words:
            words[_slot(words, os.getpid()) + 1] = words[_FIRST] = epoch

    def next_epoch(self) -> int:
        """The number that the next epoch will have."""
        with self._block.locked() as view, view.cast("q") as words:
            return words[_slot(words, os.getpid() if _worker_info() is None else _owner()) + 1]

    def __reduce__(self) -> tuple[Callable[..., EpochLedger], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:
            return EpochLedger, (self.next_epoch(),)
        return _attach, (self._block,)


def _attach(block: SharedBlock) -> EpochLedger:
    ledger = EpochLedger.__new__(EpochLedger)
    ledger._adopt(block)
    return ledger


def _worker_info() -> Any:
    data = sys.modules.get("torch.utils.data")
    return data.get_worker_info() if data is not None else None


def _owner() -> int:
    """The process whose DataLoader this worker serves (under forkserver the system's parent is another)."""
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent is not None else None
    return pid if pid is not None else os.getppid()


def _slot(words: memoryview, owner: int) -> int:
    seen = words[_OWNERS_SEEN]
    for number in range(min(seen, _OWNERS)):
        if words[_TABLE + 2 * number] == owner:
            return _TABLE + 2 * number
    slot = _TABLE + 2 * (seen % _OWNERS)
    words[slot], words[slot + 1] = owner, words[_FIRST]
    words[_OWNERS_SEEN] = seen + 1
    return slot


def _next(words: memoryview, owner: int) -> int:
    slot = _slot(words, owner)
    epoch = words[slot + 1]
    words[slot + 1] = epoch + 1
    return epoch


def _join(words: memoryview, names: tuple[int, int, int, int], worker: int) -> int:
    word, bit = _BITS + worker // 64, 1 << (worker % 64)
    bit = bit - (1 << 64) if bit >> 63 else bit  # the words are signed
    seen = words[_ROUNDS_SEEN]
    for number in range(seen - 1, max(-1, seen - 1 - _ROUNDS), -1):
        place = _ROUND_TABLE + _ROUND * (number % _ROUNDS)
        if tuple(words[place : place + _NAMES]) == names and not words[place + word] & bit:
            words[place + word] |= bit
            return words[place + _EPOCH]
    place = _ROUND_TABLE + _ROUND * (seen % _ROUNDS)
    for offset in range(_ROUND):
        words[place + offset] = names[offset] if offset < _NAMES else 0
    words[place + _EPOCH] = epoch = _next(words, names[0])
    words[place + word] = bit
    words[_ROUNDS_SEEN] = seen + 1
    return epoch
