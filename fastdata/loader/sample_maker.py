"""Sample maker: locations of records and an epoch flow in, samples flow out, or straight into their rows of a batch.

The same code runs in worker processes, in threads and in the main process, and every random number is a function of
(seed, epoch, index, occurrence, view), so that the result is the same in all of them. torch is not imported here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.encoded import DamagedPart, IndexedJpeg, PreparedDecode, open_whole
from fastdata.errors import FormatError
from fastdata.formats.checksum import UNCHECKED, check
from fastdata.formats.files import Scratch
from fastdata.formats.locations import NO_FILE, BlobSource, Locations
from fastdata.loader.generators import own_generators, seed_generators
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import Failure, Notices, SampleLog, Wanted, wanted_samples
from fastdata.sample import SampleDecoder
from fastdata.seeding import keys
from fastdata.transforms.pipeline import Pipeline
from fastdata.transforms.plan import Plan
from fastdata.transforms.render import carry_out, decoded_region

# So many images are prepared before they are decoded, of at most so many bytes together (but at least one). From 16 to
# 128 all gave about a tenth more images than one by one.
_PREPARED, _PREPARED_BYTES = 32, 4 << 20
# The stream of keys (`fastdata.seeding`) that seeds the generators around user callables.
CALLABLES = 4


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What is needed to make the samples of a loader; picklable wherever its parts are.

    Attributes:
        decoder: how samples are made of bytes.
        source: what reads the encoded images by their locations.
        seed: the loader's seed.
        skip: samples that fail will be replaced, so that the others of their batch are made, too.
        views: how many versions of a record a sample is made of.
    """

    decoder: SampleDecoder
    source: BlobSource
    seed: int
    skip: bool = False
    views: int = 1

    @property
    def pipeline(self) -> Pipeline:
        """What is done with the images."""
        return self.decoder.pipeline

    @property
    def layout(self) -> Layout | None:
        """The layout of the samples, None where only a sample can tell."""
        size = self.pipeline.size
        return None if size is None or self.pipeline.callables else Layout.picture(*size, self.views)


class Prepared(NamedTuple):
    """A sample of which the needed parts are cut out, but not decoded yet: for each view the plan and the part."""

    wanted: Wanted
    views: list[tuple[Plan, PreparedDecode]]


class Draws(NamedTuple):
    """What is drawn for the samples of a request, by view, then by sample.

    Attributes:
        numbers: for the geometric transforms, a row a sample.
        seeds: of the generators around callables; empty where there are none.
    """

    numbers: list[list[list[float]]]
    seeds: list[list[int]]


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

    def fill(
        self, epoch: int, locations: Locations, batch: NDArray[Any], layout: Layout, rows: Sequence[int]
    ) -> Notices:
        """Make the samples of a batch, or of some rows of it, in their places there."""
        log, draws = self._log(), self._draws(epoch, locations)
        wanted = deque(wanted_samples(locations, rows))
        if self._spec.layout is not None:  # geometry gives all of them this size: straight into their places
            while wanted and not log.ended:
                self._decode(self._prepare(wanted, draws, batch, log), draws, batch, log)
            return log.notices()
        for one in wanted:
            notes = list[str]()
            try:
                for view, sample in enumerate(self._views(one, draws, notes)):
                    layout.put(sample, batch[one.row, view, ...])
            except BaseException as error:
                if log.failed(one, error):
                    break
            else:
                log.remark(one, notes)
        return log.notices()

    def samples(self, epoch: int, locations: Locations, rows: Sequence[int]) -> tuple[list[Any], Notices]:
        """The samples as they come, for `collate_fn`; None for one that failed. `rows`: where they belong."""
        log, draws = self._log(), self._draws(epoch, locations)
        made: list[Any] = [None] * len(locations)
        for one in wanted_samples(locations, rows):
            notes = list[str]()
            try:
                views = list(self._views(one, draws, notes))
                made[one.number] = views if self._spec.views > 1 else views[0]
            except BaseException as error:
                if log.failed(one, error):
                    break
            else:
                log.remark(one, notes)
        return made, log.notices()

    def layout(self, epoch: int, locations: Locations) -> Layout | Failure:
        """The layout of a sample."""
        log, [one] = self._log(), wanted_samples(locations, [0])
        try:
            return Layout.of(next(self._views(one, self._draws(epoch, locations), [])), self._spec.views)
        except BaseException as error:
            log.failed(one, error)
            return log.failures[0]

    def _prepare(self, wanted: deque[Wanted], draws: Draws, batch: NDArray[np.uint8], log: SampleLog) -> list[Prepared]:
        """Take the next samples, read and plan them, and cut out what is needed of their images.

        An image that nothing can be cut out of is rendered at once: decoded ones would take memory meanwhile.
        """
        spec, room = self._spec, _PREPARED_BYTES
        prepared: list[Prepared] = []
        for _ in range(min(len(wanted), _PREPARED)):
            one, notes = wanted.popleft(), list[str]()
            views = list[tuple[Plan, PreparedDecode]]()
            try:
                image = spec.decoder.open(self._data(one))
                for view, out in enumerate(batch[one.row]):
                    numbers = draws.numbers[view][one.number]
                    if isinstance(image, IndexedJpeg):
                        plan = spec.pipeline.plan(image.size, numbers)
                        region, scale = decoded_region(plan, exact=spec.decoder.exact)
                        part = image.prepare(region, scale)
                        views.append((plan, part))
                        room -= len(part.jpeg)
                    else:
                        spec.decoder.render(image, numbers, notes, out)
            except BaseException as error:
                if log.failed(one, error):
                    break
                continue
            if views:
                prepared.append(Prepared(one, views))
            log.remark(one, notes)
            if room <= 0:
                break
        return prepared

    def _decode(self, prepared: list[Prepared], draws: Draws, batch: NDArray[np.uint8], log: SampleLog) -> None:
        """Decode what was cut out, and carry the plans out into the batch."""
        spec = self._spec
        for one, views in prepared:
            notes = list[str]()
            try:
                for view, (plan, part) in enumerate(views):
                    try:
                        carry_out(plan, part.decode(), batch[one.row, view])
                    except DamagedPart:
                        whole = open_whole(self._data(one), spec.decoder.rules)
                        numbers, out = draws.numbers[view][one.number], batch[one.row, view]
                        spec.decoder.render(whole, numbers, notes, out)
            except BaseException as error:
                if log.failed(one, error):
                    break
                continue
            log.remark(one, notes)

    def _views(self, one: Wanted, draws: Draws, notes: list[str]) -> Iterator[Any]:
        """The views of a sample, one after the other, of an image that is read once."""
        spec = self._spec
        image = spec.decoder.open(self._data(one))
        for view, rows in enumerate(draws.numbers):
            numbers = rows[one.number]
            picture = spec.decoder.render(image, numbers, notes)
            if not spec.pipeline.callables:
                yield picture
                continue
            seed, known = draws.seeds[view][one.number], "torch" in sys.modules
            sample = self._called(picture, seed)
            # One that has just loaded torch may have drawn from a generator that was not there to be seeded.
            if not known and "torch" in sys.modules:
                picture = spec.decoder.render(image, numbers, notes)
                sample = self._called(picture, seed)
            yield sample

    def _called(self, picture: NDArray[np.uint8], seed: int) -> Any:
        """An image after the user's callables, which draw from generators that are seeded for it."""
        with self._guard():
            seed_generators(seed, self._own_generators)
            return self._spec.pipeline.call(picture)

    def _draws(self, epoch: int, locations: Locations) -> Draws:
        pipeline, seed = self._spec.pipeline, self._spec.seed
        records, occurrences = locations[:, 0], locations[:, -1]
        draws = Draws([], [])
        for view in range(self._spec.views):
            draws.numbers.append(pipeline.numbers(seed, epoch, records, occurrences, view).tolist())
            if pipeline.callables:
                seeds = keys(seed, epoch, records, stream=CALLABLES, occurrences=occurrences, view=view)
                draws.seeds.append(seeds.tolist())
        return draws

    def _data(self, one: Wanted) -> bytes | memoryview:
        """The encoded image, right until the next one is read."""
        _, file, offset, size, crc, _ = one.location
        if file == NO_FILE:
            raise FormatError
        data = self._spec.source.read(file, offset, size, self._scratch)
        if crc != UNCHECKED:
            check(data, crc)
        return data

    def _log(self) -> SampleLog:
        return SampleLog(skip=self._spec.skip, in_worker=self._in_worker)
