"""World: which rank of how many, and which worker of how many, as one frozen value.

Everything that divides work asks here, once, and then computes with the numbers. torch is looked at only if the
program has imported it already: a program without it is rank 0 of 1.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class World:
    """A place among ranks (processes that train together) and workers (processes that load for one rank).

    Attributes:
        rank: this rank, 0 .. size - 1.
        size: the number of ranks, torch's world size.
        worker: this DataLoader worker, 0 .. workers - 1; 0 in the main process.
        workers: the number of workers, at least 1: without workers the main process does their work.
    """

    rank: int = 0
    size: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("rank", "size", "worker", "workers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise OptionError(f"{_SPELLED[name]} must be an int, not {value!r}")
        if self.size < 1:
            raise OptionError(f"world_size must be at least 1, not {self.size}")
        if not 0 <= self.rank < self.size:
            raise OptionError(f"rank must be 0 .. {self.size - 1} for world_size {self.size}, not {self.rank}")
        if self.workers < 1 or not 0 <= self.worker < self.workers:
            raise OptionError(f"worker must be 0 .. workers - 1, not {self.worker} of {self.workers}")

    @classmethod
    def current(cls, rank: int | None = None, world_size: int | None = None) -> Self:
        """The place of this process.

        Args:
            rank: this rank, or None to find out: torch.distributed if it is initialised, else the environment
                (RANK and WORLD_SIZE, as torchrun sets them), else 0 of 1.
            world_size: the number of ranks; given with `rank` or not at all.

        Raises:
            OptionError: one without the other, or numbers that do not fit.
        """
        if (rank is None) != (world_size is None):
            raise OptionError(f"give rank and world_size together or neither, not rank={rank}, world_size={world_size}")
        if rank is None or world_size is None:
            rank, world_size = distributed_ranks() or _environment_ranks() or (0, 1)
        worker, workers = worker_place() or (0, 1)
        return cls(rank, world_size, worker, workers)


_SPELLED = {"rank": "rank", "size": "world_size", "worker": "worker", "workers": "workers"}


def distributed_ranks() -> tuple[int, int] | None:
    """(rank, world size) by torch.distributed, None where it is not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def worker_place() -> tuple[int, int] | None:
    """(worker, number of workers) inside a DataLoader worker, None elsewhere."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return None if info is None else (int(info.id), int(info.num_workers))


def _environment_ranks() -> tuple[int, int] | None:
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and size is None:
        return None
    try:
        return int(rank or ""), int(size or "")
    except ValueError:
        raise OptionError(
            f"the environment has RANK={rank!r} and WORLD_SIZE={size!r}: both must be integers (torchrun sets them); "
            "unset both, or give rank= and world_size="
        ) from None
