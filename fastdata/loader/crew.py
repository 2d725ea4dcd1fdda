"""Crews: who makes the batches. Jobs go in, finished batches come out, in any order.

`SoloCrew` decodes in the caller, `ThreadCrew` in threads, `fastdata.loader.processes.ProcessCrew` in worker processes.
All make the same batches.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_futures
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Maker, Recipe, kept_generators


@dataclass(slots=True)
class Job:
    """One batch under way.

    Attributes:
        ticket: its number in the epoch.
        epoch: for the random numbers.
        indices: the records, int64; replaced where a sample failed and is skipped.
        rows: the rows still to be made, None for all.
        failures: what went wrong with those that were tried last.
        samples: what was made, for a loader with `collate_fn`.
        place: where the batch is made: a slot, or an array.
    """

    ticket: int
    epoch: int
    indices: NDArray[np.int64]
    rows: list[int] | None = None
    failures: list[Failure] = field(default_factory=list)
    samples: list[Any] | None = None
    place: Any = None

    @property
    def wanted(self) -> NDArray[np.int64]:
        """The records of the rows still to be made."""
        return self.indices if self.rows is None else self.indices[self.rows]


class Crew(Protocol):
    """Makes batches.

    `collating`: samples are wanted as they come, not in a batch.
    """

    depth: int

    def lay_out(self, layout: Layout | None, epoch: int, first: NDArray[np.int64]) -> Layout | Failure | None:
        """Settle the layout before the first job; found by making one of the `first` samples if it is not known."""
        ...

    def submit(self, job: Job) -> bool:
        """Take a job; False when there is no room for its batch yet."""
        ...

    def receive(self, timeout: float | None) -> list[Job] | None:
        """Wait until something happens: finished jobs, or none but room for more; None after `timeout` seconds."""
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
    """Makes batches in the caller, when they are asked for. The process's own generators are as they were after it."""

    depth = 1

    def __init__(self, recipe: Recipe, batch_size: int, *, collating: bool) -> None:
        self._maker, self._batch_size, self._collating = Maker(recipe), batch_size, collating
        self._keep = kept_generators if recipe.pipeline.callables else nullcontext
        self._layout: Layout | None = None
        self._jobs: deque[Job] = deque()

    def lay_out(self, layout: Layout | None, epoch: int, first: NDArray[np.int64]) -> Layout | Failure | None:
        if layout is None and not self._collating:
            with self._keep():
                samples, failures = self._maker.samples(epoch, first[:1])
            if failures:
                return failures[0]
            layout = Layout.of(samples[0])
        self._layout = layout
        return layout

    def submit(self, job: Job) -> bool:
        self._jobs.append(job)
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:  # noqa: ARG002  # nobody else is waited for
        return [self._made(self._jobs.popleft())]

    def _made(self, job: Job) -> Job:
        with self._keep():
            if self._collating or self._layout is None:
                made, job.failures = self._maker.samples(job.epoch, job.wanted)
                job.samples = merged(job, made)
                return job
            if job.place is None:
                job.place = np.empty(len(job.indices) * self._layout.nbytes, np.uint8)
            batch = self._layout.batch(job.place, len(job.indices))
            rows = range(len(job.indices)) if job.rows is None else job.rows
            job.failures = self._maker.fill(job.epoch, job.wanted, batch, self._layout, rows)
        return job

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

    def lay_out(self, layout: Layout | None, epoch: int, first: NDArray[np.int64]) -> Layout | Failure | None:  # noqa: ARG002
        return layout

    def _made(self, job: Job) -> Job:
        return job


class ThreadCrew(SoloCrew):
    """Makes batches in threads. OpenCV lets go of the GIL while it decodes; user callables run one at a time."""

    def __init__(self, recipe: Recipe, batch_size: int, workers: int, prefetch: int, *, collating: bool) -> None:
        super().__init__(recipe, batch_size, collating=collating)
        self.depth = workers * prefetch
        self._lock: Any = threading.Lock() if recipe.pipeline.callables else nullcontext()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="fastdata")
        self._running: set[Future[Job]] = set()

    def submit(self, job: Job) -> bool:
        self._running.add(self._pool.submit(self._locked, job))
        return True

    def _locked(self, job: Job) -> Job:
        with self._lock:
            return self._made(job)

    def receive(self, timeout: float | None) -> list[Job] | None:
        done, self._running = wait_futures(self._running, timeout, FIRST_COMPLETED)
        return [future.result() for future in done] or None

    def rest(self) -> None:
        for future in self._running:
            future.cancel()
        self._running = set()

    def stop(self) -> None:
        self.rest()
        self._pool.shutdown(wait=True, cancel_futures=True)


def merged(job: Job, made: list[Any]) -> list[Any]:
    """What was made now, put among what was made before."""
    if job.rows is None or job.samples is None:
        return made
    samples = list(job.samples)
    for row, sample in zip(job.rows, made, strict=True):
        samples[row] = sample
    return samples
