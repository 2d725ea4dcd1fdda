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
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError, ResourceError, WorkerError
from fastdata.formats.places import Places
from fastdata.limits import refused
from fastdata.loader.child import Child
from fastdata.loader.crew import Job, Laid, Lost, merged, too_slow
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Recipe
from fastdata.loader.ring import PAGE, Ring
from fastdata.loader.start import check_main
from fastdata.sharedmem import SharedBlock
from fastdata.signals import uninterrupted

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
_CRASHED = {-getattr(signal, name) for name in ("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE") if hasattr(signal, name)}


class _Part(NamedTuple):
    """The samples `first` .. `stop` of what a job wants."""

    job: Job
    first: int
    stop: int

    @property
    def samples(self) -> list[int]:
        """The numbers of the records."""
        return self.job.wanted[self.first : self.stop, 0].tolist()  # type: ignore[no-any-return]


class _Member:
    """A worker process, and the parts of jobs that it has not answered yet, oldest first."""

    def __init__(self, context: Any, block: SharedBlock, recipe: Recipe, others: list[_Member], *, main: bool) -> None:
        self.parts: deque[_Part | None] = deque()  # None: a message whose answer says nothing
        self._imports_main, self._lived = main, False
        connections = [other.child.connection for other in others]
        self.child: Child = Child(context, block, recipe, others=connections, main=main)

    @property
    def load(self) -> int:
        """The samples that it has still to make."""
        return sum(part.stop - part.first for part in self.parts if part is not None)

    def death(self, samples: Sequence[int] = ()) -> Lost:
        """What to raise when the process has ended. `samples`: the records that it had, where no part tells them."""
        self.child.ended(_GRACE_SECONDS)
        code = self.child.code()
        had = next((part.samples for part in self.parts if part is not None), samples)
        what = f"loader worker (pid {self.child.pid}) {_described(code)}"
        if self._imports_main and not self._lived and code == 1:
            return Lost(
                f"{what} before it had begun", (), "it imports your script, since a transform is defined there; put "
                'what the script does under `if __name__ == "__main__":`, or the transform into a module of its own',
            )  # fmt: skip
        return Lost(what, had, _advice(code, self._lived))

    def tell(self, message: tuple[Any, ...], samples: Sequence[int] = ()) -> None:
        try:
            self.child.connection.send(message)
        except OSError as error:
            raise self.death(samples) from error

    def heard(self, samples: Sequence[int] = ()) -> Any:
        try:
            blob = self.child.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self.death(samples) from error
        self._lived = True
        return pickle.loads(blob)


def _described(code: int | None) -> str:
    """An exit code in words.

    >>> _described(3), _described(-9)
    ('ended with exit code 3', 'was ended by signal 9 (SIGKILL)')
    """
    if code is None:
        return "has ended; its exit code was taken by another wait of this program"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"was ended by signal {-code}"


def _advice(code: int | None, lived: bool) -> str:
    """What to do about a death."""
    again = "the loader can be iterated again"
    if code in _OUT_OF_MEMORY:
        return f"often memory ran out: use fewer workers or smaller batches; {again}"
    if code in _CRASHED:
        return f"native code crashed, of a transform or a decoder; {again}"
    if code is not None and code >= 0:
        why = "a transform ended it, or an error that stands on stderr"
        return f"{why}; {again}" if lived else f"{why}, before it had begun"
    return again


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
        main = check_main(recipe, context.get_start_method())
        self._members: list[_Member] = []
        self._block = SharedBlock(PAGE)
        try:
            for _ in range(workers):
                with uninterrupted():  # a worker that was started is one of these, whatever comes
                    self._members.append(_Member(context, self._block, recipe, self._members, main=main))
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

    def _probed(self, epoch: int, place: Places, timeout: float | None) -> Layout | Failure:
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
            member.parts.append(_Part(job, first, stop))
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:
        by_handle: dict[Any, _Member] = {}
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

    def _answer(self, member: _Member) -> list[Job]:
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
        with uninterrupted():
            self.rest()
            for member in self._members:
                try:
                    member.child.connection.send(None)
                except OSError:
                    member.child.kill()
            deadline = time.monotonic() + _GRACE_SECONDS
            for member in self._members:
                member.child.close(deadline)
            self._members = []
            self._block.close()
