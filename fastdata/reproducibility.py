"""Seed a whole program and each worker process, as in PyTorch's notes on reproducibility.

With `seed_everything(seed)` in the main process and `DataLoader(..., worker_init_fn=seed_worker)`, the numbers that a
user's own transform draws from `random`, `numpy.random` and `torch` repeat from run to run, and differ between workers,
epochs and ranks. fastdata's own random numbers are independent of this: they are a function of (seed, epoch, index).

The seeds of workers: for every epoch the DataLoader draws a 64-bit base seed (from its `generator`, else from
torch's default one) and starts worker w with base + w, which is `torch.initial_seed()` there.

- Rank 0: exactly PyTorch's recipe: `random` and `numpy.random` get that number modulo 2**32, and torch's CPU
  generator uses no more of it either. Workers of one epoch never share it; over many epochs two may by chance (0.5 %
  for 100 epochs of 64 workers), as with the recipe.
- Other ranks, where all ranks were seeded alike: all three get the hash of (that number, rank). `random` and numpy
  use all of its 64 bits, numpy as an array of two 32-bit words.

Limits: with `num_workers=0` transforms run in the main process and draw from what `seed_everything` seeded, the
same on every rank (otherwise give `seed_everything` a different seed on each rank). Persistent workers are seeded once
and then continue. `PYTHONHASHSEED`, which orders sets of strings, is read when Python starts: set it in the shell.
The rank is torch.distributed's if there is a process group, else `RANK` with `WORLD_SIZE`, which torchrun sets, else
what Lightning's launcher sets (`fastdata.world`), else 0.
"""

from __future__ import annotations

import os
import random
import warnings

import numpy as np
import torch

from fastdata import seeding
from fastdata.world import World

# numpy's and the recipe's width of a seed.
_SEED_32 = 2**32
# cuBLAS is deterministic across streams with this workspace (8 buffers of 4 MiB a handle); ":16:8" takes less memory
# and is slower. Both are the values that NVIDIA's and PyTorch's notes name.
_CUBLAS_VARIABLE, _CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"


def seed_everything(seed: int, deterministic: bool = False) -> None:
    """Seed `random`, `numpy.random` and torch (the CPU and every device) of this process.

    A seed from 0 to 2**32 - 1 is used unchanged; a wider or negative one is first reduced to a 64-bit word
    (`fastdata.seeding.word`), which numpy takes as two 32-bit words. (torch's CPU generator itself uses only the lower
    32 bits of a wide seed.)

    Args:
        seed: any integer.
        deterministic: also ask torch for deterministic algorithms only (an operation that has none then raises), switch
            cuDNN's benchmark off, and set `CUBLAS_WORKSPACE_CONFIG` if it is not set. Call it before the first
            use of CUDA, since cuBLAS reads that once. False leaves these settings as they are.

    Raises:
        OptionError: the seed is not an integer.
    """
    number = seeding.word(seed)
    _seed_python_and_numpy(number)
    torch.manual_seed(number)
    if deterministic:
        _use_deterministic_algorithms()


class _SeedWorker:
    """The class of `seed_worker`: called in a worker, it seeds that worker.

    Not a plain function, because workers that start by spawn or forkserver know neither the process group nor a `RANK`
    that was set late (a fork server keeps the environment that it started with). So the rank is looked up in the
    parent, when this object is pickled for them, and is part of the pickle.
    """

    __slots__ = ("_known_rank",)

    def __init__(self, rank: int | None = None) -> None:
        self._known_rank = rank

    def __call__(self, worker_id: int) -> None:  # noqa: ARG002  (torch passes it; torch's seed already depends on it)
        started_with = torch.initial_seed()
        rank = self._rank()
        if rank == 0:
            _seed_python_and_numpy(started_with % _SEED_32)
            return
        number = seeding.key(started_with, rank)
        _seed_python_and_numpy(number)
        torch.manual_seed(number)

    def __reduce__(self) -> tuple[type[_SeedWorker], tuple[int]]:
        return _SeedWorker, (self._rank(),)

    def __repr__(self) -> str:
        return "fastdata.seed_worker"

    def _rank(self) -> int:
        return World.expected().rank if self._known_rank is None else self._known_rank


seed_worker = _SeedWorker()
"""Seed `random` and `numpy.random` of a DataLoader's worker (and torch, beyond rank 0): pass it as `worker_init_fn`.

Called with the worker's number, as torch does. Raises OptionError if the environment has `RANK` without `WORLD_SIZE`,
or if these are not integers.
"""


def _seed_python_and_numpy(number: int) -> None:
    random.seed(number)
    # The global generator on purpose: users' transforms draw from it.
    np.random.seed(number if number < _SEED_32 else [number % _SEED_32, number // _SEED_32])


def _use_deterministic_algorithms() -> None:
    if _CUBLAS_VARIABLE not in os.environ:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            warnings.warn(
                f"CUDA was in use before {_CUBLAS_VARIABLE} was set: matrix products may still differ from run to run. "
                "Call seed_everything(seed, deterministic=True) before the first use of CUDA",
                stacklevel=3,
            )
        os.environ[_CUBLAS_VARIABLE] = _CUBLAS_WORKSPACE
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
