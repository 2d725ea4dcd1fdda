"""Crews: who makes the batches. Jobs go in, finished batches come out, in any order.

`SoloCrew` decodes in the caller, `ThreadCrew` in threads, `fastdata.loader.processes.ProcessCrew` in worker processes.
All make the same batches.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import WorkerError
from fastdata.formats.places import COLUMNS, Places
from fastdata.loader.generators import forsake, kept_generators
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Maker, Recipe, Remark

# A thread cannot be killed. One that takes longer than this to end is stuck in a transform, and is left behind.
_GRACE_SECONDS = 2.0
# What settling the layout gives: None for a loader with `collate_fn`, which needs none.
Laid = Layout | Failure | None


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
    places: Places
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
    def wanted(self) -> Places:
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

    def lay_out(self, layout: Layout | None, epoch: int, first: Places, timeout: float | None) -> Laid:
        """Settle the layout before the first job; found by making a sample, the one at the place `first`, if need be.

        Raises:
            WorkerError: that took longer than `timeout` seconds.
        """
        ...

    def submit(self, job: Job) -> bool:
        """Take a job; False when there is no room for it yet."""
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
    """Makes batches in the caller, when they are asked for. The process's own generators are as they were after it.

    `collating`: samples are wanted as they come, not in a batch.
    """

    def __init__(self, recipe: Recipe, *, collating: bool) -> None:
        self.depth = 1
        self.owner: int | None = None
        self._maker, self._collating = Maker(recipe), collating
        self._keep = kept_generators if recipe.pipeline.callables else nullcontext
        self._layout: Layout | None = None
        self._jobs: deque[Job] = deque()

    def lay_out(self, layout: Layout | None, epoch: int, first: Places, timeout: float | None) -> Laid:  # noqa: ARG002
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

    def lay_out(self, layout: Layout | None, epoch: int, first: Places, timeout: float | None) -> Laid:  # noqa: ARG002
        return layout

    def _make(self, job: Job) -> None:
        """There is nothing to make."""


class ThreadCrew(SoloCrew):
    """Makes batches in threads. OpenCV lets go of the GIL while it decodes; user callables run one at a time."""

    def __init__(self, recipe: Recipe, workers: int, prefetch: int, *, collating: bool) -> None:
        super().__init__(recipe, collating=collating)
        self.depth = workers * prefetch
        self.owner = os.getpid()
        self._maker = Maker(recipe, self._keep)  # around each call, so that decoding goes on beside it
        self._generation = 0
        self._todo: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[int, Job, Exception | None]] = queue.SimpleQueue()
        # Daemons, since a stuck one must not keep Python from ending.
        self._threads = [threading.Thread(target=self._work, name="fastdata", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (order := self._todo.get()) is not None:
            generation, job = order
            error: Exception | None = None
            if generation == self._generation:
                try:
                    self._make(job)
                except Exception as raised:
                    error = raised
                except BaseException as raised:  # SystemExit and the like: not this thread's to follow
                    error = _ended(raised)
            self._made.put((generation, job, error))

    def lay_out(self, layout: Layout | None, epoch: int, first: Places, timeout: float | None) -> Laid:
        if layout is not None or self._collating or self._layout is not None:
            self._layout = self._layout or layout
            return self._layout
        found: queue.SimpleQueue[Layout | Failure | WorkerError] = queue.SimpleQueue()

        def look() -> None:
            try:
                found.put(self._maker.layout(epoch, first))
            except BaseException as raised:
                found.put(_ended(raised))

        probe = threading.Thread(target=look, daemon=True)
        probe.start()
        try:
            answer = found.get(timeout=timeout)
        except queue.Empty:
            forsake()
            raise too_slow(timeout) from None
        probe.join()
        if isinstance(answer, WorkerError):
            raise answer
        if isinstance(answer, Layout):
            self._layout = answer
        return answer

    def submit(self, job: Job) -> bool:
        self._todo.put((self._generation, job))
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:
        try:
            generation, job, error = self._made.get(timeout=timeout)
        except queue.Empty:
            return None
        if generation != self._generation:
            return []
        if error is not None:
            raise error
        return [job]

    def rest(self) -> None:
        self._generation += 1

    def stop(self) -> None:
        self.rest()
        self._made.put((-1, Job(-1, 0, np.empty((0, COLUMNS), np.int64)), None))  # wakes a consumer in another thread
        for _ in self._threads:
            self._todo.put(None)
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            forsake()


def _ended(raised: BaseException) -> WorkerError:
    return WorkerError(f"a transform raised {raised!r} in a worker thread; the loader can be iterated again")


def too_slow(timeout: float | None) -> WorkerError:
    """The error when nothing came in time."""
    return WorkerError(f"no batch within timeout={timeout} seconds; is a transform stuck?")


def merged(job: Job, made: list[Any]) -> list[Any]:
    """What was made now, put among what was made before."""
    if job.rows is None or job.samples is None:
        return made
    samples = list(job.samples)
    for row, sample in zip(job.rows, made, strict=True):
        samples[row] = sample
    return samples
