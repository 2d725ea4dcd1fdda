"""ProcessCrew: batches made by worker processes, in a ring of shared memory; no pixel passes through a pipe.

Jobs go in, finished batches come out, in any order. A worker that dies is an error at once, and no worker outlives the
crew.
"""

from __future__ import annotations

import os
import time
from collections import deque
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import WorkerError
from fastdata.loader.crew import Job, merged
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Recipe
from fastdata.loader.ring import PAGE, Ring
from fastdata.loader.start import needs_main, start
from fastdata.loader.worker import run
from fastdata.sharedmem import SharedBlock

# A worker that was told to end and does not is killed: it is decoding for nobody.
_GRACE_SECONDS = 1.0
# What fits a socket's buffer on every system, with its frame.
_SAFE_MESSAGE = 4096


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
