"""World: rank, world size, worker and number of workers, as one frozen value.

Everything that divides work gets these numbers here: no other module reads RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, NODE_RANK or torch's worker info. torch is used only if the program has imported it already: a program
without it is rank 0 of 1.

RANK without WORLD_SIZE is always refused, even if it is 0: the other ranks of such a program would not know the world
size, and rank 0 alone would train on everything.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastdata.checks import integer, refuse
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class World:
    """The position among ranks (processes that train together) and workers (processes that load for one rank).

    Attributes:
        rank: this rank, 0 to world_size - 1.
        world_size: the number of ranks.
        worker: this DataLoader worker, 0 to workers - 1; 0 in the main process.
        workers: the number of workers, at least 1: without workers the main process does their work.
    """

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        integer("world_size", self.world_size, 1)
        integer("rank", self.rank, 0, self.world_size - 1)
        integer("workers", self.workers, 1)
        integer("worker", self.worker, 0, self.workers - 1)

    @classmethod
    def current(cls, rank: int | None = None, world_size: int | None = None) -> Self:
        """The world as this process sees it.

        Args:
            rank: this rank, or None to find out: from torch.distributed if it is initialised, else from the
                environment, else 0 of 1. torchrun sets RANK and WORLD_SIZE there; if only WORLD_SIZE and LOCAL_RANK
                are set (Lightning's launcher), the rank is NODE_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK.
            world_size: the number of ranks; given with `rank` or not at all.

        Raises:
            OptionError: one without the other, numbers that do not fit, or an environment that does not determine the
                rank.
        """
        found = cls._given(rank, world_size) or distributed_ranks() or _environment_ranks() or (0, 1)
        return cls(*found, *_worker())

    @classmethod
    def expected(cls, rank: int | None = None, world_size: int | None = None) -> Self:
        """As `current`, if no rank is needed yet: rank 0 if the rank is known only once the training begins.

        A launcher may set WORLD_SIZE long before torch.distributed knows the rank.
        """
        try:
            return cls.current(rank, world_size)
        except UnknownRankError as error:
            return cls(0, error.world_size, *_worker())

    @staticmethod
    def local_world_size() -> int:
        """How many ranks share this machine: LOCAL_WORLD_SIZE, as torchrun sets it, else 1.

        Raises:
            OptionError: the variable is not an integer of at least 0.
        """
        return max(1, _variable("LOCAL_WORLD_SIZE") or 1)

    @staticmethod
    def _given(rank: int | None, world_size: int | None) -> tuple[int, int] | None:
        if (rank is None) != (world_size is None):
            raise OptionError(f"give rank and world_size together or neither, not rank={rank}, world_size={world_size}")
        return None if rank is None or world_size is None else (rank, world_size)


class UnknownRankError(OptionError):
    """The number of ranks is known, but not the rank of this process."""

    def __init__(self, message: str, world_size: int) -> None:
        super().__init__(message)
        self.world_size = world_size

    def __reduce__(self) -> tuple[type[UnknownRankError], tuple[str, int]]:
        return UnknownRankError, (str(self), self.world_size)


class WorkerInfo(NamedTuple):
    """What torch reports about a DataLoader worker.

    Attributes:
        worker: its number.
        workers: how many there are.
        base_seed: the seed that its DataLoader drew for all of them.
    """

    worker: int
    workers: int
    base_seed: int


def distributed_ranks() -> tuple[int, int] | None:
    """(rank, world size) from torch.distributed, None if it is not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def worker_info() -> WorkerInfo | None:
    """Which worker of a torch DataLoader this process is, None if it is not a worker."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return None if info is None else WorkerInfo(int(info.id), int(info.num_workers), int(info.seed) - int(info.id))


def _worker() -> tuple[int, int]:
    info = worker_info()
    return (0, 1) if info is None else info[:2]


def _environment_ranks() -> tuple[int, int] | None:
    """(rank, world size) from the environment, None if it does not state any."""
    rank, size = _variable("RANK"), _variable("WORLD_SIZE")
    if rank is None and size is None:
        return None
    if size is None:
        raise OptionError(
            f"the environment has RANK={rank} without WORLD_SIZE: set both (torchrun does), unset both, or give rank= "
            "and world_size="
        )
    return _launched_rank(size) if rank is None else rank, size


def _launched_rank(size: int) -> int:
    """The rank from the node's number and the local rank, as Lightning's launcher sets them."""
    local, node, each = _variable("LOCAL_RANK"), _variable("NODE_RANK") or 0, _variable("LOCAL_WORLD_SIZE")
    if size == 1:
        return 0
    if local is None or (node and each is None):
        raise UnknownRankError(
            f"the environment has WORLD_SIZE={size} without RANK, and {_shown('LOCAL_RANK')}, {_shown('NODE_RANK')}, "
            f"{_shown('LOCAL_WORLD_SIZE')} do not say which rank this is: initialise torch.distributed first, set "
            f"RANK=0 to {size - 1}, or give rank= and world_size=",
            size,
        )
    return node * (each or 0) + local


def _shown(name: str) -> str:
    return f"{name}={os.environ[name]!r}" if name in os.environ else f"no {name}"


def _variable(name: str) -> int | None:
    """An environment variable as an int of at least 0, None if it is not set.

    Raises:
        OptionError: it is anything else.
    """
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal():
        refuse(f"the environment variable {name}", "an integer of at least 0, as torchrun sets it, or unset", text)
    return int(text)
