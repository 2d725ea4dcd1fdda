"""Crews: who makes the batches. Jobs go in, finished batches come out, in any order.

`SoloCrew` decodes in the caller, `fastdata.loader.threads.ThreadCrew` in threads and
`fastdata.loader.processes.ProcessCrew` in worker processes. All make the same batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import WorkerError
from fastdata.formats.base import Reader
from fastdata.formats.locations import Locations
from fastdata.loader.generators import kept_generators
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import Failure, Remark
from fastdata.loader.sample_maker import SampleMaker, SampleSpec

# Keys of samples in an error.
_SHOWN = 8
# What settling the layout gives: None for a loader with `collate_fn`, which needs none.
Laid = Layout | Failure | None


class Lost(Exception):
    """A worker ended, or is late. Whoever knows the keys tells it on as a `WorkerError`.

    Args:
        what: what happened, in words.
        samples: the numbers of the records that it had.
        advice: why that may be, and what to do.
    """

    def __init__(self, what: str, samples: Sequence[int], advice: str) -> None:
        super().__init__(what)
        self.what, self.samples, self.advice = what, samples, advice

    def told(self, reader: Reader) -> WorkerError:
        """The error for whoever iterates."""
        names = ", ".join(repr(reader.keys[index]) for index in self.samples[:_SHOWN])
        more = f" and {len(self.samples) - _SHOWN} more" if len(self.samples) > _SHOWN else ""
        count = "1 sample" if len(self.samples) == 1 else f"{len(self.samples)} samples"
        had = f" with {count} under way ({names}{more})" if names else ""
        return WorkerError(f"{reader.path}: {self.what}{had}; {self.advice}")


@dataclass(slots=True)
class Job:
    """One batch under way.

    Attributes:
        ticket: its number in the epoch.
        epoch: for the random numbers.
        places: the records, a row (record, file, offset, size, crc, occurrence) each; replaced where one failed and is
            skipped.
        rows: the rows still to be made, None for all.
        failures: what went wrong with those that were tried last.
        remarks: what there is to say about those that were made.
        samples: what was made, for a loader with `collate_fn`.
        place: where the batch is made: a slot, or an array.
        skipped: (key, reason) of the samples that were replaced.
        parts: how many parts of it are at work, where it is shared among workers.
        made: what these have made for a loader with `collate_fn`, by the first sample of each.
    """

    ticket: int
    epoch: int
    places: Locations
    rows: list[int] | None = None
    failures: list[Failure] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    samples: list[Any] | None = None
    place: Any = None
    skipped: list[tuple[str, str]] = field(default_factory=list)
    parts: int = 0
    made: dict[int, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def indices(self) -> NDArray[np.int64]:
        """The numbers of the records."""
        return self.places[:, 0]

    @property
    def wanted(self) -> Locations:
        """The places of the rows still to be made."""
        return self.places if self.rows is None else self.places[self.rows]


class Crew(Protocol):
    """Makes batches.

    Attributes:
        depth: how many jobs it wants at a time.
        owner: the process that it belongs to, whose forks must leave it alone; None if it can be used in any.
    """

    depth: int
    owner: int | None

    def lay_out(self, layout: Layout | None, epoch: int, first: Locations, timeout: float | None) -> Laid:
        """Settle the layout before the first job; found by making a sample, the one at the place `first`, if need be.

        Raises:
            Lost: a worker ended, or it took longer than `timeout` seconds.
        """
        ...

    def submit(self, job: Job) -> bool:
        """Take a job; False when there is no room for it yet."""
        ...

    def receive(self, timeout: float | None) -> list[Job] | None:
        """Wait until something happens: finished jobs, or none but room for more; None after `timeout` seconds.

        Raises:
            Lost: a worker ended.
        """
        ...

    def unmade(self, ticket: int) -> list[int]:
        """The numbers of the records that are at work for a batch."""
        ...

    def interrupt(self) -> None:
        """From another thread: whoever waits in `receive` or `lay_out` returns; the crew is only to be stopped then."""
        ...

    def hand_out(self, job: Job) -> NDArray[np.uint8]:
        """The memory of a finished batch, for the consumer to keep."""
        ...

    def drop(self, job: Job) -> None:
        """Give up a finished job."""
        ...

    def rest(self) -> None:
        """Forget all jobs; the crew can be used again."""
        ...

    def stop(self) -> None:
        """End everything."""
        ...


class SoloCrew:
    """Makes batches in the caller, when they are asked for. The process's own generators are as they were after it.

    `collating`: samples are wanted as they come, not in a batch.
    """

    def __init__(self, spec: SampleSpec, *, collating: bool) -> None:
        self.depth = 1
        self.owner: int | None = None
        self._maker, self._collating = SampleMaker(spec), collating
        self._keep = kept_generators if spec.pipeline.callables else nullcontext
        self._layout: Layout | None = None
        self._jobs: deque[Job] = deque()

    def lay_out(self, layout: Layout | None, epoch: int, first: Locations, timeout: float | None) -> Laid:  # noqa: ARG002
        if layout is None and not self._collating:
            with self._keep():
                found = self._maker.layout(epoch, first)
            if isinstance(found, Failure):
                return found
            layout = found
        self._layout = layout
        return layout

    def submit(self, job: Job) -> bool:
        self._jobs.append(job)
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:  # noqa: ARG002  # nobody else is waited for
        job = self._jobs.popleft()
        with self._keep():
            self._make(job)
        return [job]

    def _make(self, job: Job) -> None:
        rows = range(len(job)) if job.rows is None else job.rows
        if self._collating or self._layout is None:
            made, (job.failures, remarks) = self._maker.samples(job.epoch, job.wanted, rows)
            job.remarks += remarks
            job.samples = merged(job, made)
            return
        if job.place is None:
            job.place = np.empty(len(job) * self._layout.nbytes, np.uint8)
        batch = self._layout.batch(job.place, len(job))
        job.failures, remarks = self._maker.fill(job.epoch, job.wanted, batch, self._layout, rows)
        job.remarks += remarks

    def unmade(self, ticket: int) -> list[int]:  # noqa: ARG002
        return []

    def interrupt(self) -> None:
        """Nobody waits here: a transform at work in the caller ends when it ends."""

    def hand_out(self, job: Job) -> NDArray[np.uint8]:
        place: NDArray[np.uint8] = job.place
        return place

    def drop(self, job: Job) -> None:
        """Its memory goes with it."""

    def rest(self) -> None:
        self._jobs.clear()

    def stop(self) -> None:
        self.rest()


class ClerkCrew(SoloCrew):
    """For a loader that yields no pictures: every batch is finished as it comes."""

    def lay_out(self, layout: Layout | None, epoch: int, first: Locations, timeout: float | None) -> Laid:  # noqa: ARG002
        return layout

    def _make(self, job: Job) -> None:
        """There is nothing to make."""


def too_slow(timeout: float | None, samples: Sequence[int]) -> Lost:
    """What to raise when nothing came in time. `samples`: what the batch that is waited for still lacks."""
    return Lost(f"no batch within timeout={timeout} seconds", samples, "is a transform stuck, or the storage slow?")


def merged(job: Job, made: list[Any]) -> list[Any]:
    """What was made now, put among what was made before."""
    if job.rows is None or job.samples is None:
        return made
    samples = list(job.samples)
    for row, sample in zip(job.rows, made, strict=True):
        samples[row] = sample
    return samples
