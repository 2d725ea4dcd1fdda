"""Crews: who makes the batches. Jobs go in, finished batches come out, in any order.

`ProcessCrew` decodes in worker processes into a ring of shared memory (pixels never pass through a pipe),
`ThreadCrew` in threads, `SoloCrew` in the caller. All make the same batches.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_futures
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import WorkerError
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Maker, Recipe, kept_generators
from fastdata.loader.ring import PAGE, Ring
from fastdata.loader.start import needs_main, start
from fastdata.loader.worker import run
from fastdata.sharedmem import SharedBlock

# A worker that was told to end and does not is killed: it is decoding for nobody.
_GRACE_SECONDS = 1.0
# What fits a socket's buffer on every system, with its frame.
_SAFE_MESSAGE = 4096


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


class _Member:
    """A worker process, its connection, and the jobs that it has not answered yet, oldest first."""

    def __init__(self, context: Any, block: SharedBlock, recipe: Recipe, others: list[_Member], *, main: bool) -> None:
        self.connection, theirs = context.Pipe()
        self.jobs: deque[Job | None] = deque()  # None: a job that nobody waits for any more
        forked = context.get_start_method() == "fork"
        inherited = [self.connection, *(other.connection for other in others)] if forked else []
        self.process = context.Process(
            target=run, args=(theirs, block, recipe, inherited), daemon=True, name="fastdata-worker"
        )
        try:
            start(self.process, main=main)
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()

    def death(self) -> WorkerError:
        self.process.join(_GRACE_SECONDS)
        code = self.process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        hint = " (often: the machine ran out of memory; use fewer workers or smaller batches)" if code == -9 else ""
        return WorkerError(f"loader worker (pid {self.process.pid}) {how}{hint}; the loader can be iterated again")


class ProcessCrew:
    """Makes batches in worker processes, in the slots of a ring.

    Args:
        recipe: how samples are made.
        batch_size: the most samples in a batch.
        workers: how many processes.
        prefetch: jobs for each of them at a time.
        context: a context of multiprocessing.
        collating: samples come back through the pipe instead.
    """

    def __init__(
        self, recipe: Recipe, batch_size: int, workers: int, prefetch: int, context: Any, *, collating: bool
    ) -> None:
        self.depth = workers * prefetch
        self._batch_size, self._collating = batch_size, collating
        self._layout: Layout | None = None
        self._ring: Ring | None = None
        self._generation = 0
        self._owner = os.getpid()
        self._block = SharedBlock(PAGE)
        self._members: list[_Member] = []
        try:
            main = context.get_start_method() != "fork" and needs_main(recipe.pipeline)
            for _ in range(workers):
                self._members.append(_Member(context, self._block, recipe, self._members, main=main))
        except BaseException:
            self.stop()
            raise

    def lay_out(self, layout: Layout | None, epoch: int, first: NDArray[np.int64]) -> Layout | Failure | None:
        if self._collating or self._ring is not None:
            return self._layout
        if layout is None:
            answer = self._asked(self._members[0], ("probe", epoch, int(first[0])))
            if isinstance(answer, Failure):
                return answer
            layout = answer
        self._ring = Ring(self._block, self._batch_size * layout.nbytes, self.depth)
        self._layout = layout
        for member in self._members:
            self._tell(member, ("lay_out", layout, self._ring.size))
            member.jobs.append(None)  # its answer means nothing
        return layout

    def _asked(self, member: _Member, message: tuple[Any, ...]) -> Any:
        self._tell(member, message)
        ready = wait([member.connection, member.process.sentinel])
        if member.connection not in ready:
            raise member.death()
        return self._heard(member)

    def _tell(self, member: _Member, message: tuple[Any, ...]) -> None:
        try:
            member.connection.send(message)
        except OSError as error:
            raise member.death() from error

    def _heard(self, member: _Member) -> Any:
        try:
            return member.connection.recv()
        except (EOFError, OSError) as error:
            raise member.death() from error

    def submit(self, job: Job) -> bool:
        blob = job.wanted.tobytes()
        if self._collating:
            message: tuple[Any, ...] = ("samples", job.ticket, self._generation, job.epoch, blob)
        else:
            assert self._ring is not None
            if job.place is None and (slot := self._ring.take()) is not None:
                job.place = slot
            if job.place is None:
                return False
            place, count = self._ring.place(job.place), len(job.indices)
            message = ("fill", job.ticket, self._generation, place, count, job.rows, job.epoch, blob)
        member = min(self._members, key=lambda each: len(each.jobs))
        if self._collating and member.jobs and len(blob) > _SAFE_MESSAGE:
            return False  # it may be sending samples, and would not read what we send
        self._tell(member, message)
        member.jobs.append(job)
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:
        by_handle: dict[Any, _Member] = {}
        for member in self._members:
            by_handle[member.connection] = by_handle[member.process.sentinel] = member
        ready = wait(list(by_handle), timeout)
        if not ready:
            return None
        heard = [handle for handle in ready if isinstance(handle, Connection)]
        if not heard:
            raise by_handle[ready[0]].death()
        return [job for handle in heard for job in self._answer(by_handle[handle])]

    def _answer(self, member: _Member) -> list[Job]:
        answer = self._heard(member)
        job = member.jobs.popleft()
        if job is None:
            return []
        if job.epoch < 0:  # forgotten: only its slot matters
            self._forget(job)
            return []
        _, job.failures, *made = answer
        if made:
            job.samples = merged(job, made[0])
        return [job]

    def _forget(self, job: Job) -> None:
        if self._ring is not None and job.place is not None:
            self._ring.give_back(job.place)
            job.place = None

    def hand_out(self, job: Job) -> NDArray[np.uint8]:
        assert self._ring is not None
        return self._ring.hand_out(job.place, sum(len(member.jobs) for member in self._members))

    def drop(self, job: Job) -> None:
        self._forget(job)

    def rest(self) -> None:
        """Jobs under way are answered without being done; their slots come back with the answers."""
        self._generation += 1
        self._block.buffer[:8] = self._generation.to_bytes(8, "little")
        for member in self._members:
            for job in member.jobs:
                if job is not None:
                    job.epoch = -1
        if self._ring is not None:
            jobs = (job for member in self._members for job in member.jobs)
            self._ring.reclaim({job.place for job in jobs if job is not None and job.place is not None})

    def stop(self) -> None:
        if os.getpid() != self._owner:  # a child that was forked from the owner has no say
            return
        self.rest()
        for member in self._members:
            try:
                member.connection.send(None)
            except OSError:
                member.process.kill()
        deadline = time.monotonic() + _GRACE_SECONDS
        for member in self._members:
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.process.close()
            member.connection.close()
        self._members = []
        self._block.close()


def merged(job: Job, made: list[Any]) -> list[Any]:
    """What was made now, put among what was made before."""
    if job.rows is None or job.samples is None:
        return made
    samples = list(job.samples)
    for row, sample in zip(job.rows, made, strict=True):
        samples[row] = sample
    return samples
