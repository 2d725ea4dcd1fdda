"""Sample maker: locations of records and an epoch flow in, samples flow out, or straight into their rows of a batch.

The same code runs in worker processes, in threads and in the main process, and every random number is a function of
(seed, epoch, index, occurrence, view), so that the result is the same in all of them. torch is not imported here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import Rules
from fastdata.codec.encoded import DamagedPart, EncodedImage, IndexedJpeg, PreparedDecode, open_encoded, open_whole
from fastdata.formats.checksum import check
from fastdata.formats.files import Scratch
from fastdata.formats.locations import NO_FILE, Locations
from fastdata.loader.generators import SeededCalls
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import (
    OCCURRENCE,
    Made,
    NotLocated,
    SampleLog,
    Values,
    Wanted,
    wanted_samples,
)
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.sample_values import ValueMaker
from fastdata.seeding import keys
from fastdata.size import Size
from fastdata.transforms.plan import Plan
from fastdata.transforms.render import carry_out, decoded_region

if TYPE_CHECKING:
    from fastdata.codec.info import Data

# So many images are prepared before they are decoded, of at most so many bytes together (but at least one). From 16 to
# 128 all gave about a tenth more images than one by one.
_PREPARED, _PREPARED_BYTES = 32, 4 << 20
# The stream of keys (`fastdata.seeding`) that seeds the generators around user callables.
CALLABLES = 4


class Prepared(NamedTuple):
    """A sample of which the needed parts are cut out, but not decoded yet: for each view the plan and the part."""

    wanted: Wanted
    views: list[tuple[Plan, PreparedDecode]]


class Work(NamedTuple):
    """What the samples of a request are made with.

    Attributes:
        numbers: what is drawn for the geometric transforms: by view, a row a sample.
        seeds: of the generators around callables, by view, then by sample; empty where there are none.
        open: opens the image of a sample, which is right until the next one is opened.
        sizes: of the images that were opened, by sample, where fields move with them.
        log: takes what goes wrong.
    """

    numbers: list[list[list[float]]]
    seeds: list[list[int]]
    open: Callable[..., EncodedImage]
    sizes: dict[int, Size]
    log: SampleLog


class SampleMaker:
    """Makes samples by a spec. Records are given by rows of `spec.columns` numbers; see `fastdata.loader.sample_log`.

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
        self._spec, self._in_worker = spec, in_worker
        self._scratch = Scratch()
        self._calls = SeededCalls(guard, [call.transform for call in spec.pipeline.callables])
        self._values = ValueMaker(spec.decoder, spec.fields, spec.seed, guard) if spec.values else None

    def fill(self, epoch: int, locations: Locations, batch: NDArray[Any], layout: Layout, rows: Sequence[int]) -> Made:
        """Make the samples of a batch, or of some rows of it, their images in their places there."""
        work, samples = self._work(epoch, locations), wanted_samples(locations, rows)
        if self._spec.layout is not None:  # geometry gives all of them this size: straight into their places
            wanted = deque(samples)
            while wanted and not work.log.ended:
                self._decode(self._prepare(wanted, work, batch), work, batch)
        else:
            self._put(samples, work, batch, layout)
        return work.log.made(values=self._further(epoch, locations, samples, work))

    def samples(self, epoch: int, locations: Locations, rows: Sequence[int]) -> Made:
        """The samples as they come, for `collate_fn`. `rows`: where they belong."""
        work, samples = self._work(epoch, locations), wanted_samples(locations, rows)
        made: list[Any] = [None] * len(locations)
        for one in samples:
            notes = list[str]()
            try:
                views = list(self._views(one, work, notes))
                made[one.number] = views if self._spec.views > 1 else views[0]
            except BaseException as error:
                if work.log.failed(one, error):
                    break
            else:
                work.log.remark(one, notes)
        return work.log.made(samples=made, values=self._further(epoch, locations, samples, work))

    def values(self, epoch: int, locations: Locations, rows: Sequence[int]) -> Made:
        """What samples without images hold."""
        work, samples = self._work(epoch, locations), wanted_samples(locations, rows)
        return work.log.made(values=self._further(epoch, locations, samples, work))

    def layout(self, epoch: int, locations: Locations) -> Made:
        """The layout of an image."""
        work, [one] = self._work(epoch, locations), wanted_samples(locations, [0])
        layout = None
        try:
            layout = Layout.of(next(self._views(one, work, [])), self._spec.views)
        except BaseException as error:
            work.log.failed(one, error)
        return work.log.made(layout=layout)

    def _further(self, epoch: int, locations: Locations, samples: Sequence[Wanted], work: Work) -> Values:
        """What samples hold beside their images, which are made."""
        if self._values is None:
            return {}
        return self._values.values(epoch, locations, samples, partial(self._plans, work), work.log)

    def _plans(self, work: Work, one: Wanted) -> list[Plan]:
        """The plan of an image for each view; none where no field moves with it."""
        if not self._spec.decoder.needs_plan:
            return []
        size = work.sizes.get(one.number) or work.open(one).size
        return [self._spec.pipeline.plan(size, rows[one.number]) for rows in work.numbers]

    def _put(self, samples: Sequence[Wanted], work: Work, batch: NDArray[Any], layout: Layout) -> None:
        """Make samples whose layout only they can tell, and put them in their places."""
        for one in samples:
            notes = list[str]()
            try:
                for view, sample in enumerate(self._views(one, work, notes)):
                    layout.put(sample, batch[one.row, view, ...])
            except BaseException as error:
                if work.log.failed(one, error):
                    break
            else:
                work.log.remark(one, notes)

    def _prepare(self, wanted: deque[Wanted], work: Work, batch: NDArray[np.uint8]) -> list[Prepared]:
        """Take the next samples, read and plan them, and cut out what is needed of their images.

        An image that nothing can be cut out of is rendered at once: decoded ones would take memory meanwhile.
        """
        spec, log, room = self._spec, work.log, _PREPARED_BYTES
        prepared: list[Prepared] = []
        for _ in range(min(len(wanted), _PREPARED)):
            one, notes = wanted.popleft(), list[str]()
            views = list[tuple[Plan, PreparedDecode]]()
            try:
                image = work.open(one)
                for view, out in enumerate(batch[one.row]):
                    numbers = work.numbers[view][one.number]
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

    def _decode(self, prepared: list[Prepared], work: Work, batch: NDArray[np.uint8]) -> None:
        """Decode what was cut out, and carry the plans out into the batch."""
        spec, log = self._spec, work.log
        for one, views in prepared:
            notes = list[str]()
            try:
                for view, (plan, part) in enumerate(views):
                    try:
                        carry_out(plan, part.decode(), batch[one.row, view])
                    except DamagedPart:
                        whole = work.open(one, open_whole)
                        numbers, out = work.numbers[view][one.number], batch[one.row, view]
                        spec.decoder.render(whole, numbers, notes, out)
            except BaseException as error:
                if log.failed(one, error):
                    break
                continue
            log.remark(one, notes)

    def _views(self, one: Wanted, work: Work, notes: list[str]) -> Iterator[Any]:
        """The views of a sample, one after the other, of an image that is read once."""
        spec = self._spec
        image = work.open(one)
        for view, rows in enumerate(work.numbers):
            numbers = rows[one.number]
            pixels = spec.decoder.render(image, numbers, notes)
            if not spec.pipeline.callables:
                yield pixels
                continue
            seed, known = work.seeds[view][one.number], "torch" in sys.modules
            sample = self._calls.call(seed, spec.pipeline.call, pixels)
            # One that has just loaded torch may have drawn from a generator that was not there to be seeded.
            if not known and "torch" in sys.modules:
                pixels = spec.decoder.render(image, numbers, notes)
                sample = self._calls.call(seed, spec.pipeline.call, pixels)
            yield sample

    def _work(self, epoch: int, locations: Locations) -> Work:
        spec, sizes = self._spec, dict[int, Size]()
        pipeline, records, occurrences = spec.pipeline, locations[:, 0], locations[:, OCCURRENCE]
        opener = partial(self._open_noting, sizes) if spec.decoder.needs_plan else self._open
        work = Work([], [], opener, sizes, SampleLog(skip=spec.skip, in_worker=self._in_worker))
        for view in range(spec.views):
            work.numbers.append(pipeline.numbers(spec.seed, epoch, records, occurrences, view).tolist())
            if pipeline.callables:
                seeds = keys(spec.seed, epoch, records, stream=CALLABLES, occurrences=occurrences, view=view)
                work.seeds.append(seeds.tolist())
        return work

    def _open(self, one: Wanted, how: Callable[[Data, Rules], EncodedImage] = open_encoded) -> EncodedImage:
        """The image of a sample, right until the next one is opened."""
        _, file, offset, size, crc, _ = one.location
        if file == NO_FILE:
            raise NotLocated(None)
        data = self._spec.source.read(file, offset, size, self._scratch)
        check(data, crc)
        return how(data, self._spec.decoder.rules)

    def _open_noting(
        self, sizes: dict[int, Size], one: Wanted, how: Callable[[Data, Rules], EncodedImage] = open_encoded
    ) -> EncodedImage:
        image = self._open(one, how)
        sizes[one.number] = image.size
        return image
