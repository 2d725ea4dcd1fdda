"""ThreadCrew: batches made by threads of this process."""

from __future__ import annotations

import os
import queue
import threading
import time

import numpy as np

from fastdata.errors import OptionError
from fastdata.formats.locations import COLUMNS, Locations
from fastdata.loader.crew import Job, Laid, Lost, SoloCrew, too_slow
from fastdata.loader.generators import forsake
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import Failure
from fastdata.loader.sample_maker import SampleMaker, SampleSpec

# A thread cannot be killed. One that takes longer than this to end is stuck in a transform, and is left behind.
_GRACE_SECONDS = 2.0


class ThreadCrew(SoloCrew):
    """Makes batches in threads. OpenCV lets go of the GIL while it decodes; user callables run one at a time."""

    def __init__(self, spec: SampleSpec, workers: int, prefetch: int, *, collating: bool) -> None:
        super().__init__(spec, collating=collating)
        self.depth = workers * prefetch
        self.owner = os.getpid()
        # The generators are kept around each call, so that decoding goes on beside it.
        self._maker = SampleMaker(spec, self._keep, in_worker=True)
        self._generation = 0
        self._at_work: dict[int, Job] = {}
        self._found: queue.SimpleQueue[Layout | Failure | Lost] = queue.SimpleQueue()
        self._interrupted = False
        self._todo: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[int, Job, Exception | None]] = queue.SimpleQueue()
        # Daemons, since a stuck one must not keep Python from ending.
        self._threads = [threading.Thread(target=self._work, name="fastdata", daemon=True) for _ in range(workers)]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:  # there are no more threads
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            started = len(self._threads)
            self.stop()
            raise OptionError(
                f"num_workers={workers}: thread {started + 1} could not be started ({error}); use fewer workers, or "
                "raise the limit (`ulimit -u`, `ulimit -v`)"
            ) from error

    def _work(self) -> None:
        while (order := self._todo.get()) is not None:
            generation, job = order
            error: Exception | None = None
            if generation == self._generation:
                try:
                    self._make(job)
                except BaseException as raised:  # what is no Exception is not this thread's to follow
                    error = raised if isinstance(raised, Exception) else _ended(raised, job.wanted)
            self._made.put((generation, job, error))

    def lay_out(self, layout: Layout | None, epoch: int, first: Locations, timeout: float | None) -> Laid:
        if layout is not None or self._collating or self._layout is not None:
            self._layout = self._layout or layout
            return self._layout
        self._found = found = queue.SimpleQueue[Layout | Failure | Lost]()  # another one's answer may come late
        if self._interrupted:  # before there was this queue to tell it through
            raise _interruption()

        def look() -> None:
            try:
                found.put(self._maker.layout(epoch, first))
            except BaseException as raised:
                found.put(_ended(raised, first))

        probe = threading.Thread(target=look, daemon=True)
        probe.start()
        try:
            answer = found.get(timeout=timeout)
        except queue.Empty:
            forsake()
            raise too_slow(timeout, first[:, 0].tolist()) from None
        if isinstance(answer, Lost):
            raise answer
        probe.join()
        if isinstance(answer, Layout):
            self._layout = answer
        return answer

    def submit(self, job: Job) -> bool:
        self._at_work[job.ticket] = job
        self._todo.put((self._generation, job))
        return True

    def receive(self, timeout: float | None) -> list[Job] | None:
        try:
            generation, job, error = self._made.get(timeout=timeout)
        except queue.Empty:
            return None
        if generation != self._generation:
            return []
        del self._at_work[job.ticket]
        if error is not None:
            raise error
        return [job]

    def unmade(self, ticket: int) -> list[int]:
        job = self._at_work.get(ticket)
        return [] if job is None else job.wanted[:, 0].tolist()

    def interrupt(self) -> None:
        self._interrupted = True
        self._made.put((-1, Job(-1, 0, np.empty((0, COLUMNS), np.int64)), None))
        self._found.put(_interruption())

    def rest(self) -> None:
        self._generation += 1
        self._interrupted = False
        self._at_work.clear()

    def stop(self) -> None:
        self.rest()
        for _ in self._threads:
            self._todo.put(None)
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            forsake()


def _interruption() -> Lost:
    return _ended(GeneratorExit(), np.empty((0, COLUMNS), np.int64))


def _ended(raised: BaseException, places: Locations) -> Lost:
    return Lost(f"a worker thread was ended by {raised!r}", places[:, 0].tolist(), "the loader can be iterated again")
