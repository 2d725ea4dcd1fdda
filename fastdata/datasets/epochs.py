"""EpochLedger: the epochs of a stream count themselves, in the main process and in DataLoader workers alike.

A DataLoader gives its workers copies of the data set, may throw the workers away after each epoch or keep them, and
calls `iter` in each of them. All workers of one round must agree on the epoch, the next round must get the next one,
and `set_epoch` and a loaded state, both of the main process, must reach workers that live already. So the count is kept
in a few pages of shared memory that all copies of a stream hold:

- for each *owner* (the process that iterates over the stream or over a DataLoader) its next epoch, where in it a loaded
  state begins, and whether its latest epoch was given to workers;
- the latest *rounds*: owner, base seed (which a DataLoader draws once and gives to all its workers), the how-manieth
  `iter` of these workers it is, the number of workers, the epoch and its beginning, and which workers have joined.

A worker joins the latest round that fits and that it is not in, or else opens one with its owner's next epoch. One that
has loaded a state of its own opens the round with that state's epoch, so the owner's next one follows it. Ranks started
with one stream are owners of their own, so each counts for itself.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context
from typing import Any, NamedTuple

from fastdata.errors import OptionError
from fastdata.sharedmem import SharedBlock
from fastdata.world import worker_info

# Ranks of one machine that share a ledger; beyond, the oldest is forgotten and would start from the first epoch again.
_OWNERS = 256
# A round is needed until its last worker has started; nobody has this many loaders starting at a time.
_ROUNDS = 64
_MOST_WORKERS = 1024  # bits for workers in a round

# 64-bit words: the first epoch, its beginning, who loaded that; what was told; owners and rounds so far; both tables
_FIRST, _FIRST_START, _LOADER, _TOLD, _OWNERS_SEEN, _ROUNDS_SEEN, _TABLE = range(7)
# Of an owner: its process, the next epoch, where a loaded state begins in it, whether workers had the latest one.
_NEXT, _START, _IN_WORKERS, _OWNER = 1, 2, 3, 4
_ROUND_TABLE = _TABLE + _OWNER * _OWNERS
_NAMES = 4  # words that say which round it is: owner, base seed, ordinal, workers
_EPOCH, _ROUND_START, _BITS = _NAMES, _NAMES + 1, _NAMES + 2
_ROUND = _BITS + _MOST_WORKERS // 64
_WORDS = _ROUND_TABLE + _ROUND * _ROUNDS
# No state was loaded. (0 is a state's place, too: an epoch that a state has named is used up by its first sample only.)
_UNLOADED = -1


class Place(NamedTuple):
    """Where an iteration begins.

    Attributes:
        epoch: its number.
        start: how many of the rank's batches (samples, without a batch size) were had before all its workers began.
        taken: how many of this worker's part were had besides.
    """

    epoch: int
    start: int = 0
    taken: int = 0


class EpochLedger:
    """Hands out epochs, from `first` on.

    Args:
        first: the first epoch's number.
        start: where in it the first iteration begins, if a state was loaded.
    """

    def __init__(self, first: int = 0, start: int = _UNLOADED) -> None:
        self._adopt(SharedBlock(8 * _WORDS))
        with self._words() as words:
            words[_FIRST], words[_FIRST_START], words[_LOADER] = first, start, os.getpid()

    def _adopt(self, block: SharedBlock) -> None:
        self._block = block
        self._named: Place | None = None
        self._loaded = False
        self._iterations: dict[tuple[int, int], int] = {}

    @contextmanager
    def _words(self) -> Iterator[memoryview]:
        with self._block.locked() as view, view.cast("q") as words:
            yield words

    def claim(self) -> Place:
        """Where an iteration that begins now begins."""
        info = worker_info()
        if info is None:
            with self._words() as words:
                slot = _slot(words, os.getpid())
                if words[slot + _START] == _UNLOADED:
                    return _next(words, slot, in_workers=False)
                return Place(words[slot + _NEXT], words[slot + _START])
        named, self._named = self._named, None
        if named is not None and not self._loaded:
            return named
        if info.workers > _MOST_WORKERS:
            raise OptionError(f"num_workers={info.workers}: a stream serves at most {_MOST_WORKERS} workers")
        owner, base = _owner(), info.base_seed
        ordinal = self._iterations.get((owner, base), 0)
        self._iterations[owner, base] = ordinal + 1
        with self._words() as words:
            place = _join(words, (owner, base, ordinal, info.workers), info.worker, named)
        return place if named is None else named

    def begun(self, place: Place) -> None:
        """The first sample of an iteration is asked for: only now is a place used up that a state has named.

        So an iterator that is made and thrown away, as some programs do after loading a state, takes nothing from it.
        """
        if worker_info() is None:
            with self._words() as words:
                slot = _slot(words, os.getpid())
                if (words[slot + _NEXT], words[slot + _START]) == place[:2]:
                    _next(words, slot, in_workers=False)

    def tells_first(self) -> bool:
        """Whether this is the first time that this is asked, by any process: to say something once only."""
        with self._words() as words:
            told, words[_TOLD] = words[_TOLD], 1
            return not told

    def name_next(self, epoch: int) -> None:
        """Give the next epoch its number; those after it count on from there. A state in that epoch keeps its place."""
        if self.next_place()[0].epoch != epoch or not self._is_loaded():
            self._set(Place(epoch), loaded=False)

    def load(self, place: Place) -> None:
        """Let the next iteration begin where a state stands."""
        self._set(place, loaded=True)

    def _set(self, place: Place, *, loaded: bool) -> None:
        if worker_info() is not None:  # of this worker alone; or a data set around ours passes the epoch on in each
            self._named, self._loaded = place, loaded
            return
        with self._words() as words:
            slot = _slot(words, os.getpid())
            start = place.start if loaded else _UNLOADED
            words[slot + _NEXT] = words[_FIRST] = place.epoch
            words[slot + _START] = words[_FIRST_START] = start
            words[slot + _IN_WORKERS], words[_LOADER] = 0, os.getpid()

    def _is_loaded(self) -> bool:
        if worker_info() is not None:
            return self._named is not None and self._loaded
        with self._words() as words:
            return words[_slot(words, os.getpid()) + _START] != _UNLOADED

    def next_place(self) -> tuple[Place, bool]:
        """Where the next iteration will begin, and whether workers had the one before."""
        if self._named is not None:
            return self._named, False
        with self._words() as words:
            slot = _slot(words, os.getpid() if worker_info() is None else _owner())
            return Place(words[slot + _NEXT], max(words[slot + _START], 0)), bool(words[slot + _IN_WORKERS])

    def __reduce__(self) -> tuple[Callable[..., EpochLedger], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:
            place = self.next_place()[0]
            return EpochLedger, (place.epoch, place.start if self._is_loaded() else _UNLOADED)
        return _attach, (self._block,)


def _attach(block: SharedBlock) -> EpochLedger:
    ledger = EpochLedger.__new__(EpochLedger)
    ledger._adopt(block)
    return ledger


def drops_of_each_worker() -> bool:
    """Whether the DataLoader of this worker makes batches itself, with `drop_last`.

    Nothing in a worker tells, but the arguments that its process was made with; where another torch names them
    otherwise, the answer is no.
    """
    process = multiprocessing.current_process()
    target, arguments = getattr(process, "_target", None), getattr(process, "_args", ())
    if target is None or not arguments:
        return False
    given = inspect.signature(target).bind_partial(*arguments).arguments
    return given.get("auto_collation") is True and given.get("drop_last") is True


def warn_of_drops(path: str, workers: int) -> None:
    """Say that samples of the data set `path` are lost, and what to do."""
    warnings.warn(
        f"{path}: samples are lost: torch's DataLoader makes the batches in each of its {workers} workers by itself, "
        "and drop_last=True leaves out the last one of each; let the stream make them, ImageStream(..., batch_size=N, "
        "drop_last=True), and give DataLoader(stream, batch_size=None)",
        stacklevel=3,
    )


def _owner() -> int:
    """The process whose DataLoader this worker serves (under forkserver the system's parent is another)."""
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent is not None else None
    return pid if pid is not None else os.getppid()


def _slot(words: memoryview, owner: int) -> int:
    seen = words[_OWNERS_SEEN]
    for number in range(min(seen, _OWNERS)):
        if words[_TABLE + _OWNER * number] == owner:
            return _TABLE + _OWNER * number
    slot = _TABLE + _OWNER * (seen % _OWNERS)
    words[slot], words[slot + _NEXT], words[slot + _START] = owner, words[_FIRST], words[_FIRST_START]
    words[slot + _IN_WORKERS] = 0
    words[_OWNERS_SEEN] = seen + 1
    return slot


def _next(words: memoryview, slot: int, *, in_workers: bool) -> Place:
    """The owner's next place; the epoch after it is next."""
    place = Place(words[slot + _NEXT], max(words[slot + _START], 0))
    words[slot + _NEXT], words[slot + _START], words[slot + _IN_WORKERS] = place.epoch + 1, _UNLOADED, in_workers
    if words[slot] == words[_LOADER]:  # processes forked from now on are no ranks that wait for the loaded state
        words[_FIRST_START] = _UNLOADED
    return place


def _join(words: memoryview, names: tuple[int, int, int, int], worker: int, loaded: Place | None) -> Place:
    """Where a worker begins in the round of these names, which it opens where there is none: with its loaded state."""
    word, bit = _BITS + worker // 64, 1 << (worker % 64)
    bit = bit - (1 << 64) if bit >> 63 else bit  # the words are signed
    seen = words[_ROUNDS_SEEN]
    for number in range(seen - 1, max(-1, seen - 1 - _ROUNDS), -1):
        row = _ROUND_TABLE + _ROUND * (number % _ROUNDS)
        place = Place(words[row + _EPOCH], words[row + _ROUND_START])
        fits = tuple(words[row : row + _NAMES]) == names and (loaded is None or loaded[:2] == place[:2])
        if fits and not words[row + word] & bit:
            words[row + word] |= bit
            return place
    row, slot = _ROUND_TABLE + _ROUND * (seen % _ROUNDS), _slot(words, names[0])
    if loaded is not None:
        words[slot + _NEXT], words[slot + _START] = loaded.epoch, loaded.start
    place = _next(words, slot, in_workers=True)
    for offset in range(_ROUND):
        words[row + offset] = names[offset] if offset < _NAMES else 0
    words[row + _EPOCH], words[row + _ROUND_START], words[row + word] = place.epoch, place.start, bit
    words[_ROUNDS_SEEN] = seen + 1
    return place
