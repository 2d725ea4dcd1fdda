"""ProcessCrew: batches made by worker processes, in a ring of shared memory; no pixel passes through a pipe.

Jobs go in, finished batches come out, in any order. A worker that dies is an error at once, and no worker outlives the
crew.
"""

from __future__ import annotations

import itertools
import os
import time
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError, ResourceError, WorkerError
from fastdata.formats.locations import Locations
from fastdata.limits import refused
from fastdata.loader.crew import Job, Laid, merged, too_slow
from fastdata.loader.layout import Layout
from fastdata.loader.member import GRACE_SECONDS, Member, Part
from fastdata.loader.ring import PAGE, Ring
from fastdata.loader.sample_log import Failure
from fastdata.loader.sample_maker import SampleSpec
from fastdata.loader.start import check_main
from fastdata.sharedmem import SharedBlock
from fastdata.signals import deferred_signals

# Messages on their way to one worker. Each is some 150 bytes and takes about 1 kB of a socket's buffer, of which Linux
# gives 208 kB and others less: sending one never waits for a worker, which may itself be waiting to send.
_MOST_UNDER_WAY = 32
# A batch is shared among the workers, so that the first one comes soon and all end at the same time, but not in parts
# smaller than this: each costs two messages, some 60 us of the main process.
_LEAST_PART = 32


class ProcessCrew:
    """Makes batches in worker processes, in the slots of a ring.

    Args:
        spec: how samples are made.
        batch_size: the most samples in a batch.
        workers: how many processes.
        prefetch: jobs under way for each of them.
        context: a context of multiprocessing.
        collating: samples come back through the pipe instead.
    """

    def __init__(
        self, spec: SampleSpec, batch_size: int, workers: int, prefetch: int, context: Any, *, collating: bool
    ) -> None:
        self.depth = workers * min(prefetch, _MOST_UNDER_WAY)
        self.owner: int | None = os.getpid()
        self._batch_size, self._collating = batch_size, collating
        self._layout: Layout | None = None
        self._ring: Ring | None = None
        self._generation = 0
        main = check_main(spec, context.get_start_method())
        self._members: list[Member] = []
        self._block = SharedBlock(PAGE)
        try:
            for _ in range(workers):
                with deferred_signals():  # a worker that was started is one of these, whatever comes
                    self._members.append(Member(context, self._block, spec, self._members, main=main))
        except BaseException as error:
            started = len(self._members)
            self.stop()
            if not isinstance(error, (OSError, EOFError, MemoryError)):
                raise
            reason = None if isinstance(error, EOFError) else refused(error)
            if reason is None:
                raise WorkerError(f"worker {started + 1} of {workers} could not be started: {error!r}") from error
            raise OptionError(
                f"num_workers={workers}: worker {started + 1} could not be started, since {reason}; use fewer workers, "
                "or raise the limit"
            ) from error

    def lay_out(self, layout: Layout | None, epoch: int, first: Locations, timeout: float | None) -> Laid:
        if self._ring is not None:
            return self._layout
        if layout is None and not self._collating:
            answer = self._probed(epoch, first, timeout)
            if isinstance(answer, Failure):
                return answer
            layout = answer
        self._layout = None if self._collating else layout
        nbytes = 0 if self._layout is None else self._layout.nbytes
        try:
            self._ring = Ring(self._block, self._batch_size, nbytes, self.depth)
        except ResourceError as error:
            raise OptionError(
                f"{error}; it is for batches of {self._batch_size} samples of {nbytes:,} bytes, {self.depth} at work "
                "and some in use: use a smaller batch_size or prefetch_factor, or fewer workers"
            ) from error
        for member in self._members:
            member.tell(("lay_out", self._layout, self._batch_size, self._ring.size))
            member.parts.append(None)
        return self._layout

    def _probed(self, epoch: int, place: Locations, timeout: float | None) -> Layout | Failure:
        member, samples = self._members[0], place[:, 0].tolist()
        member.tell(("probe", epoch, *place[0].tolist()), samples)
        ready = wait([member.child.connection, member.child.end], timeout)
        if not ready:
            raise too_slow(timeout, samples)
        if member.child.connection not in ready:
            raise member.death(samples)
        found: Layout | Failure = member.heard(samples)
        return found

    def submit(self, job: Job) -> bool:
        assert self._ring is not None
        wanted = job.wanted
        job.parts = min(len(self._members), max(1, len(wanted) // _LEAST_PART))
        if sum(_MOST_UNDER_WAY - len(member.parts) for member in self._members) < job.parts:
            return False
        if job.place is None:
            job.place = self._ring.take()
        if job.place is None:
            return False
        self._ring.order(job.place, wanted, job.rows)
        name, slot, rows = "samples" if self._collating else "fill", self._ring.place(job.place), job.rows is not None
        bounds = [len(wanted) * part // job.parts for part in range(job.parts + 1)]
        for first, stop in itertools.pairwise(bounds):
            ready = (member for member in self._members if len(member.parts) < _MOST_UNDER_WAY)
            member = min(ready, key=lambda each: each.load)
            member.tell((name, self._generation, slot, first, stop, rows, job.epoch))
            member.parts.append(Part(job, first, stop))
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:
        by_handle: dict[Any, Member] = {}
        for member in self._members:
            by_handle[member.child.connection] = by_handle[member.child.end] = member
        ready = wait(list(by_handle), timeout)
        if not ready:
            return None
        heard = [handle for handle in ready if not isinstance(handle, int)]  # ends are plain numbers
        if not heard:
            raise by_handle[ready[0]].death()
        return [job for handle in heard for job in self._answer(by_handle[handle])]

    def unmade(self, ticket: int) -> list[int]:
        parts = (part for member in self._members for part in member.parts if part is not None)
        return [sample for part in parts if part.job.ticket == ticket for sample in part.samples]

    def interrupt(self) -> None:
        for member in self._members:
            member.child.kill()

    def _answer(self, member: Member) -> list[Job]:
        answer = member.heard()
        part = member.parts.popleft()
        if part is None:
            if answer is not None:
                raise ResourceError(f"a loader worker (pid {member.child.pid}) has no room for the batches: {answer}")
            return []
        job = part.job
        job.parts -= 1
        if job.epoch < 0:  # forgotten: only its slot matters
            if not job.parts:
                self.drop(job)
            return []
        (failures, remarks), *made = answer
        job.failures += failures
        job.remarks += remarks
        if made:
            job.made[part.first] = made[0]
        if job.parts:
            return []
        job.failures.sort(key=lambda failure: failure.row)
        if job.made:
            job.samples = merged(job, [sample for first in sorted(job.made) for sample in job.made[first]])
            job.made.clear()
            self.drop(job)
        return [job]

    @property
    def _working(self) -> list[Job]:
        """The jobs that are under way."""
        parts = (part for member in self._members for part in member.parts if part is not None)
        return list({id(part.job): part.job for part in parts}.values())

    def hand_out(self, job: Job) -> NDArray[np.uint8]:
        assert self._ring is not None
        return self._ring.hand_out(job.place, len(self._working))

    def drop(self, job: Job) -> None:
        if self._ring is not None and job.place is not None:
            self._ring.give_back(job.place)
            job.place = None

    def rest(self) -> None:
        """Jobs under way are answered without being done; their slots come back with the answers."""
        self._generation += 1
        self._block.buffer[:8] = self._generation.to_bytes(8, "little")
        working = self._working
        for job in working:
            job.epoch = -1
        if self._ring is not None:
            self._ring.reclaim({job.place for job in working if job.place is not None})

    def stop(self) -> None:
        with deferred_signals():
            self.rest()
            for member in self._members:
                try:
                    member.child.connection.send(None)
                except OSError:
                    member.child.kill()
            deadline = time.monotonic() + GRACE_SECONDS
            for member in self._members:
                member.child.close(deadline)
            self._members = []
            self._block.close()
