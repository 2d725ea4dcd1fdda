"""Jobs: what a crew is sent, batch by batch. In: a pass. Out: jobs, and what takes the place of samples that failed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdata.formats.base import Reader
from fastdata.formats.checksum import UNCHECKED
from fastdata.formats.locations import locations_of
from fastdata.loader.crew import Job
from fastdata.loader.passes import Pass
from fastdata.loader.schedule import Wanted
from fastdata.loader.settings import Settings


class Jobs:
    """The jobs of a pass, in order.

    Args:
        settings: of the loader.
        reader: where the records lie.
        course: the pass.

    Attributes:
        sent: the number of the next job.
    """

    def __init__(self, settings: Settings, reader: Reader, course: Pass) -> None:
        self._settings, self._reader, self._pass = settings, reader, course
        self.sent = course.schedule.first
        self._next: Job | None = None
        self._wanted: dict[int, Wanted] = {}
        # What the sampler raised. A list, since it is popped to be raised: if it stayed, it would make a cycle with its
        # own stack, which would keep the workers alive until the next collection.
        self._failed: list[Exception] = []

    def following(self) -> Job | None:
        """The next job; None behind the last one, or where the sampler failed."""
        if self._next is None and not self._failed and self.sent != self._pass.schedule.total:
            try:
                wanted = self._pass.schedule.batch(self.sent)
            except Exception as error:
                self._failed.append(error)
                return None
            if wanted is not None:
                self._wanted[self.sent] = wanted
                places = self._places(wanted.records, wanted.occurrences)
                self._next = Job(self.sent, self._pass.schedule.epoch, places)
        return self._next

    def advance(self) -> None:
        """The next job was taken."""
        self._next = None
        self.sent += 1

    def check(self) -> None:
        """Raise what the sampler raised; in its place, behind the batches before it."""
        if self._failed:
            raise self._failed.pop()

    def row(self, ticket: int, row: int, attempt: int) -> NDArray[np.int64]:
        """A sample of a batch that was sent or is next; from attempt 1 on what takes the place of one that failed."""
        wanted = self._wanted[ticket]
        if not attempt:
            return self._places(wanted.records[row], wanted.occurrences[row])
        return self._places(*wanted.replacement(self._settings.seed, self._pass.schedule.epoch, row, attempt))

    def done(self, ticket: int) -> None:
        """A batch was handed out: none of its samples will be replaced any more."""
        del self._wanted[ticket]

    def _places(self, records: ArrayLike, occurrences: ArrayLike) -> NDArray[np.int64]:
        """Where records lie, and their occurrences in the last column."""
        places = locations_of(self._reader, np.atleast_1d(np.asarray(records, np.int64)))
        if not self._settings.verify:
            places[:, 4] = UNCHECKED
        return np.column_stack((places, np.atleast_1d(occurrences)))
