"""Settings: what a DataLoader was asked for, checked and completed, as one frozen value."""

from __future__ import annotations

import hashlib
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastdata.checks import choice, flag, function, integer, number, refuse
from fastdata.cpus import default_workers
from fastdata.errors import OptionError
from fastdata.fields.selection import Selection
from fastdata.order import Even, check_end, numbered
from fastdata.world import World

# More copies of a record than anybody means, and few enough that the positions of an epoch are 64-bit integers.
_MOST_COPIES = 1 << 20
# Batches under way for each worker: one at work, one waiting for the consumer. torch's number, too.
_PREFETCH = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """A DataLoader's arguments, once they are known to fit together.

    Attributes are the arguments of `fastdata.DataLoader`; None was replaced by what it stands for. `selection`: what
    `fields` asks for; `copies`: how many times each of `indices` has come before in them, None where none comes twice;
    `chosen`: their hash, for states.
    """

    batch_size: int | None
    shuffle: bool
    selection: Selection
    sampler: Iterable[int] | Iterable[tuple[int, int]] | None
    batch_sampler: Iterable[Sequence[int]] | Iterable[Sequence[tuple[int, int]]] | None
    indices: NDArray[np.int64] | None
    copies: NDArray[np.int64] | None
    chosen: str
    repeats: int
    views: int
    num_workers: int
    worker_mode: str
    drop_last: bool
    pad: bool
    even: Even
    seed: int
    world: World
    on_error: str
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    prefetch_factor: int
    persistent_workers: bool
    verify: bool
    timeout: float
    context: Any

    @property
    def single(self) -> bool:
        """Whether single samples are wanted, not batches."""
        return self.batch_size is None and self.batch_sampler is None

    @property
    def sampled(self) -> Literal["sampler", "batch_sampler"] | None:
        """What of the user's determines the order; None where the loader does."""
        if self.batch_sampler is not None:
            return "batch_sampler"
        return None if self.sampler is None else "sampler"

    @property
    def split_size(self) -> int:
        """What is divided into batches: so many samples each; the batches of a batch_sampler are its own."""
        return self.batch_size or 1

    @property
    def ranks(self) -> int:
        """Among how many ranks an epoch is divided: what a user's sampler gives is for one rank alone."""
        return 1 if self.sampled else self.world.world_size

    @property
    def global_batch(self) -> int:
        """Samples in a batch of all ranks together; 1 where batches are counted, as those of a batch_sampler are."""
        return self.split_size * self.ranks


def checked(count: int, arguments: dict[str, Any]) -> Settings:
    """Settings from a DataLoader's keyword arguments, for a data set of `count` records.

    Raises:
        OptionError: a value that cannot be used, or two that exclude each other; it names them.
    """
    given = dict(arguments)
    for name, default in (("shuffle", False), ("prefetch_factor", _PREFETCH)):  # torch's own defaults are None
        given[name] = default if given[name] is None else given[name]
    if given["batch_size"] is not None:
        given["batch_size"] = integer("batch_size", given["batch_size"], 1)
    given["prefetch_factor"] = integer("prefetch_factor", given["prefetch_factor"], 1)
    for name in ("repeats", "views"):
        given[name] = integer(name, given[name], 1, _MOST_COPIES)
    for name in ("shuffle", "drop_last", "pad", "persistent_workers", "verify", "pin_memory"):
        given[name] = flag(name, given[name])
    given["pin_memory"] = given["pin_memory"] and _can_pin()
    workers = given["num_workers"]
    given["num_workers"] = default_workers() if workers is None else integer("num_workers", workers, 0)
    given["seed"] = integer("seed", given["seed"])
    choice("worker_mode", given["worker_mode"], ("process", "thread"))
    choice("on_error", given["on_error"], ("raise", "skip"))
    if given["sampler"] is not None or given["batch_sampler"] is not None:
        _check_sampler(given)
    check_end(**{name: given[name] for name in ("batch_size", "pad", "even", "drop_last")})
    given["timeout"] = number("timeout", given["timeout"], 0)
    if given["collate_fn"] is not None:
        function("collate_fn", given["collate_fn"])
    given["indices"] = None if given["indices"] is None else _indices(given["indices"], count)
    given["copies"] = None if given["indices"] is None else _copies(given["indices"])
    given["chosen"] = "" if given["indices"] is None else hashlib.sha256(given["indices"].tobytes()).hexdigest()
    given["world"] = World.expected(given.pop("rank"), given.pop("world_size"))
    given["context"] = _context(given.pop("multiprocessing_context"))
    return Settings(**given)


def _can_pin() -> bool:
    """Whether there is a device to pin memory for; a warning where there is none."""
    import torch

    if torch.cuda.is_available():
        return True
    warnings.warn("pin_memory=True does nothing here: no CUDA device is available", stacklevel=4)
    return False


def _indices(given: Any, count: int) -> NDArray[np.int64]:
    found = np.asarray(given)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        refuse("indices", "a non-empty sequence of integers", given)
    if found.min() < 0 or found.max() >= count:
        for each in (found.min(), found.max()):
            integer("each of indices", int(each), 0, count - 1)
    return found.astype(np.int64)


def _copies(indices: NDArray[np.int64]) -> NDArray[np.int64] | None:
    copies = numbered(indices)
    return copies if copies.any() else None


def _check_sampler(given: dict[str, Any]) -> None:
    """A sampler gives indices, and excludes whatever else would say which samples come."""
    name = "sampler" if given["batch_sampler"] is None else "batch_sampler"
    sampler = given[name]
    if isinstance(sampler, str) or not (isinstance(sampler, Iterable) or hasattr(sampler, "__getitem__")):
        refuse(name, "an iterable of indices" if name == "sampler" else "an iterable of lists of indices", sampler)
    if name == "batch_sampler":
        if given["batch_size"] not in (1, None) or given["sampler"] is not None or given["drop_last"]:
            raise OptionError(
                "batch_sampler already determines the batches: leave out batch_size, shuffle, sampler and drop_last"
            )
        given["batch_size"] = None
    if given["shuffle"] or given["indices"] is not None:
        raise OptionError(f"{name} already determines order and samples: leave out shuffle and indices")
    if given["repeats"] > 1:
        raise OptionError(
            f"{name} already determines the samples: leave out repeats, and let it give each index so many times"
        )
    if not given["pad"] or given["even"] != "pad":
        raise OptionError(
            f"{name} must give the indices of its own rank, which are not filled up or cut: leave out pad and even"
        )


def _context(given: Any) -> Any:
    """A context of multiprocessing, from its name or itself; None is settled when processes are started."""
    if given is None:
        return None
    if isinstance(given, str):
        return multiprocessing.get_context(
            choice("multiprocessing_context", given, multiprocessing.get_all_start_methods())
        )
    if not hasattr(given, "get_start_method"):
        refuse("multiprocessing_context", "a context or the name of a start method", given)
    return given
