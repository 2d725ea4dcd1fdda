"""Settings: what a DataLoader was asked for, checked and completed, as one frozen value."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.cpus import available_cpus
from fastdata.errors import OptionError
from fastdata.formats.base import Reader
from fastdata.order import Even, check_even, numbered
from fastdata.world import World

FIELDS = ("image", "label")
# More copies of a record than anybody means, and few enough that the positions of an epoch are 64-bit integers.
_MOST_COPIES = 1 << 20
# Batches under way for each worker: one at work, one waiting for the consumer. torch's number, too.
_PREFETCH = 2
# What a loader gives of every record, beside the fields that it was stored with.
_COLUMNS = ("image", "label", "key", "index")


@dataclass(frozen=True, slots=True)
class Settings:
    """A DataLoader's arguments, once they are known to fit together.

    Attributes are the arguments of `fastdata.DataLoader`; None was replaced by what it stands for. `copies`: how many
    times each of `indices` has come before in them, None where none comes twice; `chosen`: their hash, for states.
    """

    batch_size: int
    shuffle: bool
    fields: tuple[str, ...] | None
    sampler: Iterable[int] | Iterable[tuple[int, int]] | None
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
    def global_batch(self) -> int:
        """Samples in a batch of all ranks together; a sampler speaks for one rank alone."""
        return self.batch_size * (1 if self.sampler is not None else self.world.size)


def checked(count: int, arguments: dict[str, Any]) -> Settings:
    """Settings from a DataLoader's keyword arguments, for a data set of `count` records.

    Raises:
        OptionError: a value that cannot be used, or two that exclude each other; it names them.
    """
    given = dict(arguments)
    for name, default in (("shuffle", False), ("prefetch_factor", _PREFETCH)):  # torch's own defaults are None
        given[name] = default if given[name] is None else given[name]
    for name, least in (("batch_size", 1), ("prefetch_factor", 1), ("repeats", 1), ("views", 1)):
        given[name] = integer(name, given[name], least)
    for name in ("repeats", "views"):
        if given[name] > _MOST_COPIES:
            raise OptionError(f"{name} must be at most {_MOST_COPIES}, not {given[name]}")
    for name in ("shuffle", "drop_last", "pad", "persistent_workers", "verify", "pin_memory"):
        given[name] = flag(name, given[name])
    given["pin_memory"] = given["pin_memory"] and _can_pin()
    workers = given["num_workers"]
    given["num_workers"] = available_cpus() if workers is None else integer("num_workers", workers, 0)
    given["seed"] = integer("seed", given["seed"], None)
    _one_of("worker_mode", given["worker_mode"], ("process", "thread"))
    _one_of("on_error", given["on_error"], ("raise", "skip"))
    check_even(pad=given["pad"], even=given["even"], drop_last=given["drop_last"])
    if given["sampler"] is not None:
        _alone(given)
    timeout = given["timeout"]
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
        raise OptionError(f"timeout must be 0 (none) or a number of seconds, not {timeout!r}")
    if given["collate_fn"] is not None and not callable(given["collate_fn"]):
        raise OptionError(f"collate_fn must be callable, not {given['collate_fn']!r}")
    given["indices"] = None if given["indices"] is None else _indices(given["indices"], count)
    given["copies"] = None if given["indices"] is None else _copies(given["indices"])
    given["chosen"] = "" if given["indices"] is None else hashlib.sha256(given["indices"].tobytes()).hexdigest()
    given["fields"] = None if given["fields"] is None else _fields(given["fields"])
    given["world"] = World.expected(given.pop("rank"), given.pop("world_size"))
    given["context"] = _context(given.pop("multiprocessing_context"))
    return Settings(**given)


def check_fields(wanted: Sequence[str] | None, reader: Reader) -> None:
    """Whether the records have these fields, as far as their data set tells.

    Raises:
        OptionError: naming those that there are.
    """
    there = [*_COLUMNS, *reader.manifest.fields]
    for name in wanted or ():
        if name not in there:
            raise OptionError(f"fields: {name!r} is none of {', '.join(map(repr, there))}")


def integer(name: str, value: Any, least: int | None) -> int:
    """The value as an int, if it is one of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise OptionError(f"{name} must be an integer, not {value!r}")
    if least is not None and number < least:
        raise OptionError(f"{name} must be at least {least}, not {value!r}")
    return number


def flag(name: str, value: Any) -> bool:
    """The value as a bool, if it is one."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def _can_pin() -> bool:
    """Whether there is a device to pin memory for; a warning where there is none."""
    import torch

    if torch.cuda.is_available():
        return True
    warnings.warn("pin_memory=True does nothing here: no CUDA device is available", stacklevel=4)
    return False


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def _indices(given: Any, count: int) -> NDArray[np.int64]:
    found = np.asarray(given)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        raise OptionError("indices must be a non-empty sequence of integers")
    if found.min() < 0 or found.max() >= count:
        raise OptionError(f"indices must lie in 0 .. {count - 1}, not {found.min()} .. {found.max()}")
    return found.astype(np.int64)


def _copies(indices: NDArray[np.int64]) -> NDArray[np.int64] | None:
    copies = numbered(indices)
    return copies if copies.any() else None


def _alone(given: dict[str, Any]) -> None:
    """A sampler gives indices, and excludes whatever else would say which samples come."""
    sampler = given["sampler"]
    if isinstance(sampler, str) or not (isinstance(sampler, Iterable) or hasattr(sampler, "__getitem__")):
        raise OptionError(f"sampler must be an iterable of indices, not {sampler!r}")
    if given["shuffle"] or given["indices"] is not None:
        raise OptionError("sampler says the order and the samples itself: leave out shuffle and indices")
    if given["repeats"] > 1:
        raise OptionError(
            "sampler says the samples itself: leave out repeats, and let it give each index so many times"
        )
    if not given["pad"] or given["even"] != "pad":
        raise OptionError("sampler speaks for its own rank, and is not filled up or cut: leave out pad and even")


def _fields(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not given or not all(isinstance(name, str) for name in given):
        raise OptionError(
            f"fields must be a sequence of names ('image', 'label', 'key', 'index', or a record's field), not {given!r}"
        )
    return tuple(dict.fromkeys(given))


def _context(given: Any) -> Any:
    """A context of multiprocessing, from its name or itself; None is settled when processes are started."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return multiprocessing.get_context(given)
        except ValueError:
            methods = ", ".join(map(repr, multiprocessing.get_all_start_methods()))
            raise OptionError(f"multiprocessing_context must be one of {methods}, not {given!r}") from None
    if not hasattr(given, "get_start_method"):
        raise OptionError(f"multiprocessing_context must be a context or the name of a start method, not {given!r}")
    return given
