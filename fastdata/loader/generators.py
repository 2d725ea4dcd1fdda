"""The generators that user callables draw from: seeded for each sample, and put back where they are the process's own.

In: a sample's seed. Out: `random`, `numpy.random` and torch's CPU generator in a state that is a function of it, and
whatever transforms seed through a method of their own (`set_random_seed`, albumentations'). What cannot be seeded:
generators that a callable keeps to itself (`np.random.default_rng()`), CUDA generators, C libraries.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import numpy as np

V = TypeVar("V")

# How deep a transform that seeds itself may lie in what holds it: a list in an attribute of a user's own class is two.
_DEPTH = 4
# Longer sequences hold data, not transforms.
_LONGEST = 256
# The generators belong to the process: of all threads that load, one draws at a time. A callable may load, too.
_drawing = threading.RLock()


def abandon() -> None:
    """Wait no longer for a thread that is stuck in a callable: it keeps its lock, and everybody else gets a new one."""
    global _drawing
    _drawing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=abandon)  # another thread of the parent may have held it at the fork


def seed_generators(seed: int, own: Iterable[Callable[[int], Any]] = ()) -> None:
    """Seed the process's generators, and those of transforms (`own_generators`)."""
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)
    for set_random_seed in own:
        set_random_seed(seed & 0xFFFFFFFF)


class SeededCalls:
    """Calls of user functions, each with the generators seeded for it.

    Args:
        guard: entered around each call.
        functions: what is called; the generators that these keep to themselves are seeded, too.
    """

    def __init__(self, guard: Callable[[], AbstractContextManager[Any]], functions: Iterable[Any]) -> None:
        self._guard, self._own = guard, own_generators(functions)

    def call(self, seed: int, function: Callable[[V], Any], value: V) -> Any:
        """Call a function."""
        with self._guard():
            seed_generators(seed, self._own)
            return function(value)


def own_generators(transforms: Iterable[Any]) -> list[Callable[[int], Any]]:
    """The methods that seed transforms with generators of their own, also where another callable holds them."""
    found: list[Callable[[int], Any]] = []
    seen: set[int] = set()
    level = list(transforms)
    for _ in range(_DEPTH):
        inner: list[Any] = []
        for thing in level:
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            method = getattr(thing, "set_random_seed", None)
            if callable(method) and not isinstance(thing, type):
                found.append(method)
            else:
                inner += _parts(thing)
        level = inner
    return found


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, list | tuple):
        return list(thing) if len(thing) <= _LONGEST else []
    owner = getattr(thing, "__self__", None)  # of a bound method
    if isinstance(thing, type) or (owner is None and type(thing).__module__ in ("builtins", "numpy")):
        return []
    return [owner] if owner is not None else list(getattr(thing, "__dict__", {}).values())


@contextmanager
def kept_generators() -> Iterator[None]:
    """Put the process's own generators back afterwards: samples made in the main process leave no trace in them."""
    with _drawing:
        state, numpy_state = random.getstate(), np.random.get_state()
        torch = sys.modules.get("torch")
        torch_state = torch.default_generator.get_state() if torch is not None else None
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)
            if torch is not None and torch_state is not None:
                torch.default_generator.set_state(torch_state)
