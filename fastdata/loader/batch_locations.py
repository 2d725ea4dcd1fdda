"""BatchLocations: which samples make each batch of a pass, and where they lie. In: a pass. Out: rows of locations."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdata.formats.base import Reader
from fastdata.formats.checksum import UNCHECKED
from fastdata.formats.locations import Locations, locations_of
from fastdata.loader.passes import Pass
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.schedule import Wanted
from fastdata.loader.settings import Settings


class BatchLocations:
    """The samples of a pass, batch by batch: rows as `fastdata.loader.sample_log` describes them.

    Args:
        settings: of the loader.
        reader: where the records lie.
        spec: how samples are made: of which fields, and whether of labels.
        course: the pass.

    Attributes:
        index: the number of the next batch in the epoch.
    """

    def __init__(self, settings: Settings, reader: Reader, spec: SampleSpec, course: Pass) -> None:
        self._settings, self._reader, self._decoder = settings, reader, spec.decoder
        self._schedule = course.schedule
        self.index = self._schedule.first
        self._wanted: dict[int, Wanted] = {}
        # What the sampler raised. A list, since it is popped to be raised: if it stayed, it would make a cycle with its
        # own stack, which would keep the workers alive until the next collection.
        self._failed: list[Exception] = []

    def next(self) -> Locations | None:
        """The next batch; None behind the last one, or where the sampler failed."""
        if self._failed or self.index == self._schedule.total:
            return None
        try:
            wanted = self._schedule.batch(self.index)
        except Exception as error:
            self._failed.append(error)
            return None
        if wanted is None:
            return None
        self._wanted[self.index] = wanted
        self.index += 1
        return self._located(wanted.records, wanted.occurrences)

    def check(self) -> None:
        """Raise what the sampler raised; in its place, behind the batches before it."""
        if self._failed:
            raise self._failed.pop()

    def replacement(self, batch_index: int, row: int, attempt: int) -> Locations:
        """One row: what takes the place of a sample that failed, the first time with attempt 1."""
        wanted, schedule = self._wanted[batch_index], self._schedule
        return self._located(*wanted.replacement(self._settings.seed, schedule.epoch, row, attempt))

    def done(self, batch_index: int) -> None:
        """A batch is finished: none of its samples will be replaced any more."""
        del self._wanted[batch_index]

    def _located(self, records: ArrayLike, occurrences: ArrayLike) -> Locations:
        indices = np.atleast_1d(np.asarray(records, np.int64))
        columns = [self._locations(indices), np.atleast_1d(occurrences)]
        columns += [self._locations(indices, stored.record_name)[:, 1:] for stored in self._decoder.selection.stored]
        if self._decoder.calls_target:
            columns.append(self._reader.labels[indices])
        return np.column_stack(columns)

    def _locations(self, indices: NDArray[np.int64], field: str | None = None) -> Locations:
        locations = locations_of(self._reader, indices, field)
        if not self._settings.verify:
            locations[:, 4] = UNCHECKED
        return locations
