"""ValueMaker: what samples hold beside their images: values of stored fields, and labels that a function changes.

In: rows that say where the fields lie. Out: a list of values for each name. torch is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fastdata.errors import FormatError
from fastdata.fields.selection import Stored
from fastdata.formats.checksum import check
from fastdata.formats.files import Scratch
from fastdata.formats.locations import ABSENT, NO_FILE, BlobSource, FieldAbsent, Locations
from fastdata.loader.generators import SeededCalls
from fastdata.loader.sample_log import (
    FIELD_COLUMNS,
    IMAGE_COLUMNS,
    OCCURRENCE,
    NotLocated,
    SampleLog,
    Values,
    Wanted,
)
from fastdata.sample import SampleDecoder
from fastdata.seeding import keys
from fastdata.transforms.plan import Plan

# The stream of keys (`fastdata.seeding`) that seeds the generators around `target_transform`.
TARGETS = 5


class ValueMaker:
    """Makes the values of samples.

    Args:
        decoder: how values are made of bytes.
        sources: what reads the stored fields by their locations, in the order of `decoder.selection.stored`.
        seed: the loader's seed.
        guard: entered around user callables.
    """

    def __init__(
        self,
        decoder: SampleDecoder,
        sources: Sequence[BlobSource],
        seed: int,
        guard: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._decoder, self._seed = decoder, seed
        self._fields = list(zip(decoder.selection.stored, sources, strict=True))
        self._scratch = Scratch()
        self._calls = SeededCalls(guard, [decoder.target_transform])

    def values(
        self,
        epoch: int,
        locations: Locations,
        samples: Sequence[Wanted],
        plans: Callable[[Wanted], Sequence[Plan]],
        log: SampleLog,
    ) -> Values:
        """The values of the samples of a request, but for those that have failed.

        Args:
            epoch: for the random numbers.
            locations: a row for each sample.
            samples: the samples.
            plans: gives the plans of a sample's image, one for each view; none where no field moves with it.
            log: takes the failures.
        """
        names = [stored.name for stored, _ in self._fields]
        if self._decoder.calls_target:
            names.append(self._decoder.selection.target)
        further, seeds = locations[:, IMAGE_COLUMNS:].tolist(), self._seeds(epoch, locations)
        made = [[None] * len(names) for _ in samples]
        failed = {failure.row for failure in log.failures}
        for one in samples:
            if one.row in failed:
                if log.ended:  # by the first one that failed, and those before it may fail here
                    break
                continue
            try:
                made[one.number] = self._row(further[one.number], plans(one), seeds[one.number])
            except BaseException as error:
                if log.failed(one, error):
                    break
        return {name: [row[column] for row in made] for column, name in enumerate(names)}

    def _row(self, further: list[int], plans: Sequence[Plan], seed: int) -> list[Any]:
        """The values of a sample. One that moves with the image comes once for each view."""
        decoder, made = self._decoder, list[Any]()
        for number, (stored, source) in enumerate(self._fields):
            first = FIELD_COLUMNS * number
            data = self._data(stored, source, *further[first : first + FIELD_COLUMNS])
            if stored.field.moves and len(plans) > 1:
                made.append([decoder.value(stored, data, plan) for plan in plans])
            else:
                made.append(decoder.value(stored, data, plans[0] if plans else None))
        if decoder.calls_target:
            made.append(self._target(further[-1], seed))
        return made

    def _data(
        self, stored: Stored, source: BlobSource, file: int, offset: int, size: int, crc: int
    ) -> bytes | memoryview | None:
        """The bytes of a field, right until the next one is read; None where the record lacks it."""
        if file == ABSENT:
            return None
        if file == NO_FILE:
            raise NotLocated(stored.record_name)
        try:
            data = source.read(file, offset, size, self._scratch)
        except FieldAbsent:
            return None
        try:
            check(data, crc)
        except FormatError as error:
            raise FormatError(f"field {stored.record_name!r}: {error}") from error
        return data

    def _target(self, label: int, seed: int) -> Any:
        known = "torch" in sys.modules
        made = self._calls.call(seed, self._decoder.target, label)
        # One that has just loaded torch may have drawn from a generator that was not there to be seeded.
        if not known and "torch" in sys.modules:
            made = self._calls.call(seed, self._decoder.target, label)
        return made

    def _seeds(self, epoch: int, locations: Locations) -> list[int]:
        """Of the generators around `target_transform`, by sample."""
        if not self._decoder.calls_target:
            return [0] * len(locations)
        occurrences = locations[:, OCCURRENCE]
        drawn: list[int] = keys(self._seed, epoch, locations[:, 0], stream=TARGETS, occurrences=occurrences).tolist()
        return drawn
