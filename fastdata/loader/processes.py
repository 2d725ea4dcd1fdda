"""ProcessCrew: batches made by worker processes, in a ring of shared memory; no pixel passes through a pipe.

Jobs go in, finished batches come out, in any order. A worker that dies is an error at once, and no worker outlives the
crew.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import time
from collections import deque
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import WorkerError
from fastdata.formats.places import Places
from fastdata.loader.crew import Job, Laid, merged, too_slow
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Recipe
from fastdata.loader.ring import PAGE, Ring
from fastdata.loader.start import NAME, Deaf, needs_main, run, start, starting
from fastdata.sharedmem import SharedBlock

# A worker that was told to end and does not is killed: it is decoding for nobody.
_GRACE_SECONDS = 1.0
# Messages on their way to one worker. Each is some 150 bytes and takes about 1 kB of a socket's buffer, of which Linux
# gives 208 kB and others less: sending one never waits for a worker, which may itself be waiting to send.
_MOST_UNDER_WAY = 32
# A batch is shared among the workers, so that the first one comes soon and all end at the same time, but not in parts
# smaller than this: each costs two messages, some 60 us of the main process.
_LEAST_PART = 32
# What the kernel ends a process with that asks for memory there is none of.
_OUT_OF_MEMORY = {-getattr(signal, name) for name in ("SIGKILL", "SIGBUS") if hasattr(signal, name)}


class _Part(NamedTuple):
    """The samples `first` .. `stop` of what a job wants."""

    job: Job
    first: int
    stop: int


class _Member:
    """A worker process, its connection, and the parts of jobs that it has not answered yet, oldest first."""

    def __init__(self, context: Any, block: SharedBlock, recipe: Recipe, others: list[_Member], *, main: bool) -> None:
        method = context.get_start_method()
        self.parts: deque[_Part | None] = deque()  # None: a message whose answer says nothing
        self._imports_main, self._lived = main, False
        with starting:
            self.connection, theirs = context.Pipe()
            inherited = [self.connection, *(other.connection for other in others)] if method == "fork" else []
            self.process = context.Process(
                target=run, args=(Deaf(), theirs, block, recipe, inherited), daemon=True, name=NAME
            )
            try:
                start(self.process, method, main=main)
            except BaseException:
                self.connection.close()
                if self.process.pid is not None:
                    self.process.kill()
                    self.process.join()
                raise
            finally:
                theirs.close()

    @property
    def load(self) -> int:
        """The samples that it has still to make."""
        return sum(part.stop - part.first for part in self.parts if part is not None)

    def death(self) -> WorkerError:
        self.process.join(_GRACE_SECONDS)
        code = self.process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        if self._imports_main and not self._lived and code == 1:
            return WorkerError(
                f"loader worker (pid {self.process.pid}) {how} before it had begun: it imports your script, since "
                'a transform is defined there; put what the script does under `if __name__ == "__main__":`, or the '
                "transform into a module of its own"
            )
        hint = " (often: memory ran out; use fewer workers or smaller batches)" if code in _OUT_OF_MEMORY else ""
        return WorkerError(f"loader worker (pid {self.process.pid}) {how}{hint}; the loader can be iterated again")

    def tell(self, message: tuple[Any, ...]) -> None:
        try:
            self.connection.send(message)
        except OSError as error:
            raise self.death() from error

    def heard(self) -> Any:
        try:
            blob = self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self.death() from error
        self._lived = True
        return pickle.loads(blob)


class ProcessCrew:
    """Makes batches in worker processes, in the slots of a ring.

    Args:
        recipe: how samples are made.
        batch_size: the most samples in a batch.
        workers: how many processes.
        prefetch: jobs under way for each of them.
        context: a context of multiprocessing.
        collating: samples come back through the pipe instead.
    """

    def __init__(
        self, recipe: Recipe, batch_size: int, workers: int, prefetch: int, context: Any, *, collating: bool
    ) -> None:
        self.depth = workers * min(prefetch, _MOST_UNDER_WAY)
        self.owner: int | None = os.getpid()
        self._batch_size, self._collating = batch_size, collating
        self._layout: Layout | None = None
        self._ring: Ring | None = None
        self._generation = 0
        self._block = SharedBlock(PAGE)
        self._members: list[_Member] = []
        try:
            main = context.get_start_method() != "fork" and needs_main(recipe)
            for _ in range(workers):
                self._members.append(_Member(context, self._block, recipe, self._members, main=main))
        except BaseException:
            self.stop()
            raise

    def lay_out(self, layout: Layout | None, epoch: int, first: Places, timeout: float | None) -> Laid:
        if self._ring is not None:
            return self._layout
        if layout is None and not self._collating:
            answer = self._probed(epoch, first, timeout)
            if isinstance(answer, Failure):
                return answer
            layout = answer
        self._layout = None if self._collating else layout
        nbytes = 0 if self._layout is None else self._layout.nbytes
        self._ring = Ring(self._block, self._batch_size, nbytes, self.depth)
        for member in self._members:
            member.tell(("lay_out", self._layout, self._batch_size, self._ring.size))
            member.parts.append(None)
        return self._layout

    def _probed(self, epoch: int, place: Places, timeout: float | None) -> Layout | Failure:
        member = self._members[0]
        member.tell(("probe", epoch, *place[0].tolist()))
        ready = wait([member.connection, member.process.sentinel], timeout)
        if not ready:
            raise too_slow(timeout)
        if member.connection not in ready:
            raise member.death()
        found: Layout | Failure = member.heard()
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
            member.parts.append(_Part(job, first, stop))
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:
        by_handle: dict[Any, _Member] = {}
        for member in self._members:
            by_handle[member.connection] = by_handle[member.process.sentinel] = member
        ready = wait(list(by_handle), timeout)
        if not ready:
            return None
        heard = [handle for handle in ready if not isinstance(handle, int)]  # sentinels are plain numbers
        if not heard:
            raise by_handle[ready[0]].death()
        return [job for handle in heard for job in self._answer(by_handle[handle])]

    def _answer(self, member: _Member) -> list[Job]:
        answer = member.heard()
        part = member.parts.popleft()
        if part is None:
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
        self.rest()
        for member in self._members:
            try:
                member.connection.send(None)
            except OSError:
                member.process.kill()
            member.connection.close()  # one that is sending ends, too
        deadline = time.monotonic() + _GRACE_SECONDS
        for member in self._members:
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.process.close()
        self._members = []
        self._block.close()
