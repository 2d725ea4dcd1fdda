"""Recipe: how one sample is made. In: a record's index and the epoch. Out: a picture, in its place in a batch.

The same code runs in worker processes, in threads and in the main process, and every random number is a function of
(seed, epoch, index), so that the result is the same in all of them. torch is not imported here.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import Rules
from fastdata.errors import FastdataError
from fastdata.formats import Reader
from fastdata.loader.layout import Layout
from fastdata.seeding import keys
from fastdata.transforms.callables import PictureCall
from fastdata.transforms.pipeline import Pipeline

# The stream of keys (`fastdata.seeding`) that seeds the generators around user callables.
CALLABLES = 4


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be made: its row in the batch, its key, what went wrong, and the stack."""

    row: int
    key: str
    reason: str
    stack: str
    kind: type[Exception]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is needed to make the samples of a loader; picklable wherever its parts are.

    Attributes:
        reader: where the records come from.
        pipeline: what is done with their pictures.
        seed: the loader's seed.
        exact: never decode at a reduced DCT scale.
    """

    reader: Reader
    pipeline: Pipeline
    seed: int
    exact: bool = False

    @property
    def layout(self) -> Layout | None:
        """The layout of the samples, None where only a sample can tell."""
        size = self.pipeline.size
        return None if size is None or self.pipeline.callables else Layout.picture(*size)


class Maker:
    """Makes samples by a recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._rules = Rules.of(recipe.reader.manifest.options)

    def fill(
        self, epoch: int, indices: NDArray[np.int64], batch: NDArray[Any], layout: Layout, rows: Sequence[int]
    ) -> list[Failure]:
        """Make the samples of a batch, or of some rows of it, in their places."""
        if not self._recipe.pipeline.callables and layout.channels_last and layout.dtype == "uint8":
            numbers = self._recipe.pipeline.numbers(self._recipe.seed, epoch, indices).tolist()
            return self._each(indices, rows, lambda at, index, row: self._picture(index, numbers[at], batch[row]))
        making = self._making(epoch, indices)
        return self._each(indices, rows, lambda at, index, row: layout.put(making(at, index), batch[row]))

    def samples(self, epoch: int, indices: NDArray[np.int64]) -> tuple[list[Any], list[Failure]]:
        """The samples of a batch as they come, for `collate_fn`; None where one failed."""
        made: list[Any] = [None] * len(indices)
        making = self._making(epoch, indices)

        def make(at: int, index: int, row: int) -> None:
            made[row] = making(at, index)

        return made, self._each(indices, range(len(indices)), make)

    def _making(self, epoch: int, indices: NDArray[np.int64]) -> Callable[[int, int], Any]:
        pipeline = self._recipe.pipeline
        numbers = pipeline.numbers(self._recipe.seed, epoch, indices).tolist()
        seeds = keys(self._recipe.seed, epoch, indices, stream=CALLABLES).tolist() if pipeline.callables else []

        def make(at: int, index: int) -> Any:
            sample = self._picture(index, numbers[at])
            if pipeline.callables:
                seed_generators(seeds[at], pipeline.callables)
                sample = pipeline.call(sample)
            return sample

        return make

    def _picture(self, index: int, numbers: Any, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        recipe = self._recipe
        data = recipe.reader.image(index)[1]
        return recipe.pipeline.render(data, numbers, out=out, exact=recipe.exact, rules=self._rules)

    def _each(
        self, indices: NDArray[np.int64], rows: Sequence[int], make: Callable[[int, int, int], Any]
    ) -> list[Failure]:
        failures = []
        for at, (index, row) in enumerate(zip(indices.tolist(), rows, strict=True)):
            try:
                make(at, index, row)
            except Exception as error:
                failures.append(self._failure(row, index, error))
        return failures

    def _failure(self, row: int, index: int, error: Exception) -> Failure:
        kind = type(error) if isinstance(error, FastdataError) else RuntimeError
        reason = str(error) if isinstance(error, FastdataError) else f"{type(error).__name__}: {error}"
        return Failure(row, self._recipe.reader.keys[index], reason, traceback.format_exc(), kind)


def seed_generators(seed: int, callables: Sequence[PictureCall]) -> None:
    """Seed what user callables may draw from: `random`, `numpy.random`, torch's CPU generator, and their own.

    A generator of its own is seeded through `set_random_seed` (albumentations). What cannot be seeded: generators that
    a callable keeps to itself (`np.random.default_rng()` made at import, CUDA generators, C libraries).
    """
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)
    for part in callables:
        own = getattr(part.transform, "set_random_seed", None)
        if own is not None:
            own(seed & 0xFFFFFFFF)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Put the process's own generators back afterwards: samples made in the main process leave no trace in them."""
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
