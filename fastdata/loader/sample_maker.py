"""SampleSpec: how one sample is made. In: a record's place and the epoch. Out: a picture, in its place in a batch.

The same code runs in worker processes, in threads and in the main process, and every random number is a function of
(seed, epoch, index, occurrence, view), so that the result is the same in all of them. torch is not imported here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import Rules
from fastdata.errors import (
    FastdataError,
    FormatError,
    LoadError,
    ResourceError,
    WorkerError,
    resource_error,
    resource_words,
)
from fastdata.formats.checksum import UNCHECKED, check
from fastdata.formats.files import Scratch
from fastdata.formats.locations import NO_FILE, BlobSource, Locations
from fastdata.loader.generators import own_generators, seed_generators
from fastdata.loader.layout import Layout
from fastdata.seeding import keys
from fastdata.transforms.pipeline import Pipeline
from fastdata.transforms.render import Begun, begin

# A row of `Locations`, with the record's occurrence in the epoch behind it.
Place = list[int]
# A sample of a job: its number there, its place, its row in the batch.
Wanted = tuple[int, Place, int]
# What there is to say about a sample that was made: its row in the batch, its record, the words.
Remark = tuple[int, int, str]
# What came of a job, but for the samples themselves.
Notices = tuple[list["Failure"], list[Remark]]
# Makes one sample, and takes down what there is to say of it.
Make = Callable[[int, Place, int, list[str]], None]
# So many pictures are begun before they are finished, of at most so many bytes together (but at least one). From 16 to
# 128 all gave about a tenth more pictures than one by one.
_BEGUN, _BEGUN_BYTES = 32, 4 << 20
# The stream of keys (`fastdata.seeding`) that seeds the generators around user callables.
CALLABLES = 4
# What is kept of a reason: a whole batch may fail, and each failure passes through a pipe.
_LONGEST_REASON = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be made: its row in the batch, its record, what went wrong, and the stack (of the first).

    The reason is empty where the record's picture has no place: the reader knows why.
    """

    row: int
    index: int
    reason: str
    stack: str
    kind: type[Exception]


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What is needed to make the samples of a loader; picklable wherever its parts are.

    Attributes:
        source: what reads the encoded pictures by their places.
        rules: how they are decoded.
        pipeline: what is done with them.
        seed: the loader's seed.
        exact: never decode at a reduced DCT scale.
        skip: samples that fail will be replaced, so that the others of their batch are made, too.
        views: how many versions of a record a sample is made of.
    """

    source: BlobSource
    rules: Rules
    pipeline: Pipeline
    seed: int
    exact: bool = False
    skip: bool = False
    views: int = 1

    @property
    def layout(self) -> Layout | None:
        """The layout of the samples, None where only a sample can tell."""
        size = self.pipeline.size
        return None if size is None or self.pipeline.callables else Layout.picture(*size, self.views)


class SampleMaker:
    """Makes samples by a spec. Records are given by rows (record, file, offset, size, crc, occurrence): what
    `locations_of` has of them, and how many times each has come before in the epoch.

    Args:
        spec: the spec.
        guard: entered around user callables.
        in_worker: what is no Exception (SystemExit) is a failure of its sample, too, and ends nothing else.
    """

    def __init__(
        self,
        spec: SampleSpec,
        guard: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        in_worker: bool = False,
    ) -> None:
        self._spec, self._guard, self._in_worker = spec, guard, in_worker
        self._scratch = Scratch()
        self._own_generators = own_generators(call.transform for call in spec.pipeline.callables)

    def fill(self, epoch: int, places: Locations, batch: NDArray[Any], layout: Layout, rows: Sequence[int]) -> Notices:
        """Make the samples of a batch, or of some rows of it, in their places."""
        if self._spec.layout is not None:  # geometry gives all of them this size: straight into their places
            return self._fill(epoch, places, batch, rows)
        making = self._making(epoch, places)

        def make(at: int, place: Place, row: int, notes: list[str]) -> None:
            for view, sample in enumerate(making(at, place, notes)):
                layout.put(sample, batch[row, view, ...])

        return self._each(_listed(places, rows), make)

    def _fill(self, epoch: int, places: Locations, batch: NDArray[np.uint8], rows: Sequence[int]) -> Notices:
        """Some samples are begun, then finished, then the next ones: see `begin`."""
        spec, failures, remarks = self._spec, list[Failure](), list[Remark]()
        numbers = self._numbers(epoch, places)
        begun: dict[int, list[tuple[int, Begun]]] = {}

        def start(at: int, place: Place, row: int, notes: list[str]) -> None:
            data = self._data(place)
            for view, out in enumerate(batch[row]):
                plan_of = spec.pipeline.plan_of(numbers[view][at])
                found = begin(data, plan_of, out=out, exact=spec.exact, rules=spec.rules, notes=notes)
                if isinstance(found, Begun):
                    begun.setdefault(at, []).append((view, found))

        def finish(at: int, place: Place, row: int, notes: list[str]) -> None:
            for view, started in begun.pop(at):
                if started.finish() is None:
                    self._picture(self._data(place), numbers[view][at], notes, batch[row, view])

        def each(wanted: list[Wanted], make: Make) -> None:
            found = self._each(wanted, make)
            failures.extend(found[0])
            remarks.extend(found[1])

        wanted = _listed(places, rows)
        while wanted and (spec.skip or not failures):
            room, count = _BEGUN_BYTES, 0
            while count < min(len(wanted), _BEGUN) and room > 0 and (spec.skip or not failures):
                one = wanted[count]
                each([one], start)
                room -= sum(len(started.jpeg) for _, started in begun.get(one[0], ()))
                count += 1
            each([one for one in wanted[:count] if one[0] in begun], finish)
            del wanted[:count]
        return sorted(failures, key=lambda failure: failure.row), remarks

    def samples(self, epoch: int, places: Locations, rows: Sequence[int]) -> tuple[list[Any], Notices]:
        """The samples as they come, for `collate_fn`; None for one that failed. `rows`: where they belong."""
        made: list[Any] = [None] * len(places)
        making = self._making(epoch, places)

        def make(at: int, place: Place, _row: int, notes: list[str]) -> None:
            views = list(making(at, place, notes))
            made[at] = views if self._spec.views > 1 else views[0]

        return made, self._each(_listed(places, rows), make)

    def layout(self, epoch: int, places: Locations) -> Layout | Failure:
        """The layout of a sample."""
        found: list[Layout] = []
        making = self._making(epoch, places)

        def make(at: int, place: Place, _row: int, notes: list[str]) -> None:
            found.append(Layout.of(next(making(at, place, notes)), self._spec.views))

        failures, _ = self._each(_listed(places, [0]), make)
        return failures[0] if failures else found[0]

    def _numbers(self, epoch: int, places: Locations) -> list[Any]:
        """What the geometric transforms draw: by view, then by sample."""
        numbers, seed = self._spec.pipeline.numbers, self._spec.seed
        return [numbers(seed, epoch, places[:, 0], places[:, -1], view).tolist() for view in range(self._spec.views)]

    def _making(self, epoch: int, places: Locations) -> Callable[[int, Place, list[str]], Iterator[Any]]:
        """Makes a sample, one view after the other of what is read once."""
        pipeline, views = self._spec.pipeline, range(self._spec.views)
        numbers = self._numbers(epoch, places)
        seeds = [
            keys(self._spec.seed, epoch, places[:, 0], stream=CALLABLES, occurrences=places[:, -1], view=v).tolist()
            for v in views
            if pipeline.callables
        ]

        def make(at: int, place: Place, notes: list[str]) -> Iterator[Any]:
            data = self._data(place)
            for view in views:
                sample: Any = self._picture(data, numbers[view][at], notes)
                if pipeline.callables:
                    known = "torch" in sys.modules
                    sample = self._called(sample, seeds[view][at])
                    # One that has just loaded torch may have drawn from a generator that was not there to be seeded.
                    if not known and "torch" in sys.modules:
                        sample = self._called(self._picture(data, numbers[view][at], notes), seeds[view][at])
                yield sample

        return make

    def _called(self, picture: NDArray[np.uint8], seed: int) -> Any:
        """A picture after the user's callables, which draw from generators that are seeded for it."""
        with self._guard():
            seed_generators(seed, self._own_generators)
            return self._spec.pipeline.call(picture)

    def _picture(
        self, data: bytes | memoryview, numbers: Any, notes: list[str], out: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        spec = self._spec
        return spec.pipeline.render(data, numbers, out=out, exact=spec.exact, rules=spec.rules, notes=notes)

    def _data(self, place: Place) -> bytes | memoryview:
        """The encoded picture, right until the next one is read."""
        _, file, offset, size, crc, _ = place
        if file == NO_FILE:
            raise FormatError
        data = self._spec.source.read(file, offset, size, self._scratch)
        if crc != UNCHECKED:
            check(data, crc)
        return data

    def _each(self, wanted: list[Wanted], make: Make) -> Notices:
        failures, remarks, notes = list[Failure](), list[Remark](), list[str]()
        for at, place, row in wanted:
            try:
                make(at, place, row, notes)
            except Exception as error:
                failures.append(_failure(row, place[0], error, "" if failures else traceback.format_exc()))
                if not self._spec.skip or issubclass(failures[-1].kind, ResourceError):
                    break  # the batch will not be handed out
                notes.clear()
            except BaseException as error:
                if not self._in_worker:
                    raise
                reason = f"a transform raised {error!r}; the loader can be iterated again"
                failures.append(Failure(row, place[0], reason, traceback.format_exc(), WorkerError))
                break
            if notes:
                remarks.append((row, place[0], "; ".join(dict.fromkeys(notes))))
                notes.clear()
        return failures, remarks


def _listed(places: Locations, rows: Sequence[int]) -> list[Wanted]:
    return [(at, place, row) for at, (place, row) in enumerate(zip(places.tolist(), rows, strict=True))]


def _failure(row: int, index: int, error: Exception, stack: str) -> Failure:
    machine = resource_error(error)
    if machine is not None:  # no damage, so that it is not skipped
        return Failure(row, index, resource_words(error)[:_LONGEST_REASON], stack, machine)
    ours = type(error).__module__ == FastdataError.__module__  # those of others may take anything
    reason = str(error) if ours else f"{type(error).__name__}: {error}"
    return Failure(row, index, reason[:_LONGEST_REASON], stack, type(error) if ours else LoadError)
