"""EpochLedger: counts the epochs of a stream, in the main process and in DataLoader workers alike.

A DataLoader gives its workers copies of the data set, may end the workers after each epoch or keep them, and calls
`iter` in each of them. All workers of one round must agree on the epoch, the next round must get the next one, and
`set_epoch` and a loaded state, both of the main process, must reach live workers. So the count is kept in a few pages
of shared memory that all copies of a stream hold:

- for each *owner* (the process that iterates over the stream or over a DataLoader) its next epoch, where in it a
  loaded state begins, and whether its latest epoch was given to workers;
- the latest *rounds*: owner, base seed (which a DataLoader draws once and gives to all its workers), the ordinal of
  this `iter` call in these workers, the number of workers, the epoch and its start, and which workers have joined.

A worker joins the latest round that fits and that it has not joined, or else opens one with its owner's next epoch. A
worker that has loaded a state of its own opens the round with that state's epoch, so the owner's next one follows it.
Ranks that were started with one stream are owners of their own, so each counts for itself.
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

# Ranks of one machine that share a ledger. If there are more, the oldest is dropped and would start again.
_OWNERS = 256
# A round is needed until its last worker has started; this many loaders never start at the same time.
_ROUNDS = 64
_MOST_WORKERS = 1024  # bits for workers in a round

# 64-bit words: the first epoch, its start, the process that loaded it; whether a warning was given; the number of
# owners and of rounds so far; both tables.
_FIRST, _FIRST_START, _LOADER, _WARNED, _OWNERS_SEEN, _ROUNDS_SEEN, _TABLE = range(7)
# Words of an owner: its process, the next epoch, where a loaded state begins in it, whether workers got the latest one.
_NEXT, _START, _IN_WORKERS, _OWNER = 1, 2, 3, 4
_ROUND_TABLE = _TABLE + _OWNER * _OWNERS
_NAMES = 4  # words that identify a round: owner, base seed, ordinal, workers
_EPOCH, _ROUND_START, _BITS = _NAMES, _NAMES + 1, _NAMES + 2
_ROUND = _BITS + _MOST_WORKERS // 64
_WORDS = _ROUND_TABLE + _ROUND * _ROUNDS
# No state was loaded. (0 is a state's start, too: an epoch that a state names is used up only by its first sample.)
_UNLOADED = -1


class StreamPosition(NamedTuple):
    """Where an iteration begins.

    Attributes:
        epoch: the epoch's number.
        start: how many of the rank's batches (samples, without a batch size) were consumed before its workers began.
        taken: how many of this worker's part were consumed in addition.
    """

    epoch: int
    start: int = 0
    taken: int = 0


class EpochLedger:
    """Numbers epochs, beginning with `first`.

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
        self._named: StreamPosition | None = None
        self._loaded = False
        self._iterations: dict[tuple[int, int], int] = {}

    @contextmanager
    def _words(self) -> Iterator[memoryview]:
        with self._block.locked() as view, view.cast("q") as words:
            yield words

    def claim(self) -> StreamPosition:
        """The position of an iteration that begins now."""
        info = worker_info()
        if info is None:
            with self._words() as words:
                slot = _slot(words, os.getpid())
                if words[slot + _START] == _UNLOADED:
                    return _next(words, slot, in_workers=False)
                return StreamPosition(words[slot + _NEXT], words[slot + _START])
        named, self._named = self._named, None
        if named is not None and not self._loaded:
            return named
        if info.workers > _MOST_WORKERS:
            raise OptionError(f"num_workers={info.workers}: a stream serves at most {_MOST_WORKERS} workers")
        owner, base = _owner(), info.base_seed
        ordinal = self._iterations.get((owner, base), 0)
        self._iterations[owner, base] = ordinal + 1
        with self._words() as words:
            position = _join(words, (owner, base, ordinal, info.workers), info.worker, named)
        return position if named is None else named

    def use_up(self, position: StreamPosition) -> None:
        """Advance past a position that a state named, when the first sample of the iteration is requested.

        So an iterator that is made and dropped, as some programs do after loading a state, does not use up the state.
        """
        if worker_info() is None:
            with self._words() as words:
                slot = _slot(words, os.getpid())
                if (words[slot + _NEXT], words[slot + _START]) == position[:2]:
                    _next(words, slot, in_workers=False)

    def warns_first(self) -> bool:
        """Whether this is the first call in any process, so that a warning is given once."""
        with self._words() as words:
            warned = words[_WARNED]
            words[_WARNED] = 1
            return not warned

    def set_next(self, epoch: int) -> None:
        """Set the next epoch; the later ones follow it. If a loaded state lies in this epoch, its position is kept."""
        if self.next_position()[0].epoch != epoch or not self._is_loaded():
            self._set(StreamPosition(epoch), loaded=False)

    def load(self, position: StreamPosition) -> None:
        """Begin the next iteration at the position of a state."""
        self._set(position, loaded=True)

    def _set(self, position: StreamPosition, *, loaded: bool) -> None:
        if worker_info() is not None:  # this worker's alone; a data set around the stream may set it
            self._named, self._loaded = position, loaded
            return
        with self._words() as words:
            slot = _slot(words, os.getpid())
            start = position.start if loaded else _UNLOADED
            words[slot + _NEXT] = words[_FIRST] = position.epoch
            words[slot + _START] = words[_FIRST_START] = start
            words[slot + _IN_WORKERS], words[_LOADER] = 0, os.getpid()

    def _is_loaded(self) -> bool:
        if worker_info() is not None:
            return self._named is not None and self._loaded
        with self._words() as words:
            return words[_slot(words, os.getpid()) + _START] != _UNLOADED

    def next_position(self) -> tuple[StreamPosition, bool]:
        """Where the next iteration will begin, and whether workers had the previous one."""
        if self._named is not None:
            return self._named, False
        with self._words() as words:
            slot = _slot(words, os.getpid() if worker_info() is None else _owner())
            return StreamPosition(words[slot + _NEXT], max(words[slot + _START], 0)), bool(words[slot + _IN_WORKERS])

    def __reduce__(self) -> tuple[Callable[..., EpochLedger], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:
            position = self.next_position()[0]
            return EpochLedger, (position.epoch, position.start if self._is_loaded() else _UNLOADED)
        return _attach, (self._block,)


def _attach(block: SharedBlock) -> EpochLedger:
    ledger = EpochLedger.__new__(EpochLedger)
    ledger._adopt(block)
    return ledger


def loader_drops_in_workers() -> bool:
    """Whether the DataLoader of this worker makes batches itself, with `drop_last`.

    In a worker only the arguments of its process show it. If another version of torch names them differently, the
    answer is no.
    """
    process = multiprocessing.current_process()
    target, arguments = getattr(process, "_target", None), getattr(process, "_args", ())
    if target is None or not arguments:
        return False
    given = inspect.signature(target).bind_partial(*arguments).arguments
    return given.get("auto_collation") is True and given.get("drop_last") is True


def warn_of_drops(path: str, workers: int) -> None:
    """Warn that samples of the data set `path` are lost, and what to do."""
    warnings.warn(
        f"{path}: samples are lost: torch's DataLoader makes the batches in each of its {workers} workers by itself, "
        "and drop_last=True leaves out the last one of each; let the stream make them, ImageStream(..., batch_size=N, "
        "drop_last=True), and give DataLoader(stream, batch_size=None)",
        stacklevel=3,
    )


def _owner() -> int:
    """The process whose DataLoader this worker serves (with forkserver, the system's parent is another process)."""
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


def _next(words: memoryview, slot: int, *, in_workers: bool) -> StreamPosition:
    """The owner's next position; then set the epoch after it as next."""
    position = StreamPosition(words[slot + _NEXT], max(words[slot + _START], 0))
    words[slot + _NEXT], words[slot + _START], words[slot + _IN_WORKERS] = position.epoch + 1, _UNLOADED, in_workers
    if words[slot] == words[_LOADER]:  # processes forked from now on do not begin at the loaded state
        words[_FIRST_START] = _UNLOADED
    return position


def _join(
    words: memoryview, names: tuple[int, int, int, int], worker: int, loaded: StreamPosition | None
) -> StreamPosition:
    """Where a worker begins in the round of these names, which it opens if there is none."""
    word, bit = _BITS + worker // 64, 1 << (worker % 64)
    bit = bit - (1 << 64) if bit >> 63 else bit  # the words are signed
    seen = words[_ROUNDS_SEEN]
    for number in range(seen - 1, max(-1, seen - 1 - _ROUNDS), -1):
        row = _ROUND_TABLE + _ROUND * (number % _ROUNDS)
        position = StreamPosition(words[row + _EPOCH], words[row + _ROUND_START])
        fits = tuple(words[row : row + _NAMES]) == names and (loaded is None or loaded[:2] == position[:2])
        if fits and not words[row + word] & bit:
            words[row + word] |= bit
            return position
    row, slot = _ROUND_TABLE + _ROUND * (seen % _ROUNDS), _slot(words, names[0])
    if loaded is not None:
        words[slot + _NEXT], words[slot + _START] = loaded.epoch, loaded.start
    position = _next(words, slot, in_workers=True)
    for offset in range(_ROUND):
        words[row + offset] = names[offset] if offset < _NAMES else 0
    words[row + _EPOCH], words[row + _ROUND_START], words[row + word] = position.epoch, position.start, bit
    words[_ROUNDS_SEEN] = seen + 1
    return position
