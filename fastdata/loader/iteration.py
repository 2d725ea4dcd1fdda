"""Iteration: one epoch. A schedule and a crew in, batches in order out."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastdata.datasets.remarks import Remarks
from fastdata.errors import FormatError, LoadError, OptionError, ResourceError, WorkerError
from fastdata.formats.base import Reader, record_name
from fastdata.loader.collate import Collation
from fastdata.loader.crew import Crew, Job, Lost, too_slow
from fastdata.loader.jobs import Jobs
from fastdata.loader.layout import Layout
from fastdata.loader.passes import Pass
from fastdata.loader.sample_log import Failure
from fastdata.loader.settings import Settings
from fastdata.signals import deferred_signals, deferred_signals_in_finalizer
from fastdata.turn import Turn

if TYPE_CHECKING:
    from typing_extensions import Self

# Replacements that are tried for one sample. With half of a data set damaged, 32 in a row are one in 4 billion.
_ATTEMPTS = 32
# Failures that no other sample mends: wrong options, a machine that has run out of something, what would end a worker.
_NO_DAMAGE = (OptionError, ResourceError, WorkerError)
# How long a thread that waits for a batch may take to see that its iterator was closed; it may be in a user's callable.
_GRACE_SECONDS = 2.0


class Iteration:
    """An iterator over the batches of one epoch. Leaving it early gives its crew back for the next one.

    Args:
        settings: of the loader.
        reader: for labels, keys and other fields.
        course: the epoch's batches, and who is told how many of them were handed out.
        crew: who makes them.
        release: called once with the crew and whether it may be used again.
        layout: of the samples, None where only a sample can tell.
        skipped: (key, reason) of samples that were replaced are added here.
        remarks: likewise what decoders said of samples.
        target_transform: the user's.
    """

    def __init__(
        self,
        settings: Settings,
        reader: Reader,
        course: Pass,
        crew: Crew,
        release: Callable[[Crew, bool], None],
        *,
        layout: Layout | None,
        skipped: list[tuple[str, str]],
        remarks: Remarks,
        target_transform: Callable[[Any], Any] | None,
    ) -> None:
        self._settings, self._reader, self._pass, self._crew = settings, reader, course, crew
        self._skipped, self._collation = skipped, Collation(settings, reader, target_transform)
        self._jobs: Jobs | None = None
        self._remark = remarks.of_an_epoch()
        self._next = 0
        self._done: dict[int, Job] = {}
        self._again: list[Job] = []
        self._attempts: dict[tuple[int, int], int] = {}
        self._known = layout
        self._layout: Layout | None = None
        self._settled = False
        self._done_with = release
        self._release = weakref.finalize(self, _forgotten, release, crew)
        self._release.atexit = False
        self._cut_off = False
        self._turn = Turn()

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._pass.schedule)

    def __next__(self) -> Any:
        if self._crew.owner not in (None, os.getpid()):
            raise WorkerError("this iterator belongs to the parent of this process; begin one here: iter(loader)")
        with self._turn:
            return self._following()

    def _following(self) -> Any:
        """The next batch."""
        if not self._release.alive:
            if self._cut_off:
                raise _closed()
            raise StopIteration
        try:
            jobs = self._jobs or self._begun()
            job = self._finished(jobs)
            batch = None if job is None else self._collation.batch(job, self._images)
            self._top_up(jobs)  # before the consumer works on this batch, and to know whether it is the last one
        except Exception as error:
            if self._cut_off:  # by another thread
                raise _closed() from error
            self._leave(usable=not isinstance(error, (Lost, WorkerError)))
            if isinstance(error, Lost):
                raise error.told(self._reader) from error
            raise
        except BaseException as error:
            self._leave(usable=not isinstance(error, KeyboardInterrupt))
            raise
        if job is None:
            self._pass.end()
            self._leave(usable=True)
            raise StopIteration
        self._pass.stands(self._next, over=self._next == self._pass.schedule.total)
        return batch

    def _begun(self) -> Jobs:
        """The first batch is asked for: now it is settled which epoch this is."""
        self._pass.begin()
        self._jobs = Jobs(self._settings, self._reader, self._pass)
        self._next = self._jobs.sent
        return self._jobs

    def _leave(self, *, usable: bool) -> None:
        """Give the crew back, once. `usable`: by another iterator."""
        with deferred_signals():
            if self._release.detach() is not None:
                self._done_with(self._crew, usable)

    def close(self) -> None:
        """End the epoch here. Whoever waits for a batch in another thread meanwhile gets an error."""
        if self._turn.take(0):
            try:
                self._leave(usable=True)
            finally:
                self._turn.give_back()
            return
        self._cut_off = True
        self._crew.interrupt()
        if self._turn.mine:  # in a handler or a callable: `next` gives up when it goes on
            return
        left = self._turn.take(_GRACE_SECONDS)
        try:
            self._leave(usable=False)
        finally:
            if left:
                self._turn.give_back()

    def cut_off(self) -> None:
        """End the epoch because its loader is closed: going on is an error, not the end of the data."""
        self._cut_off = self._next != self._pass.schedule.total and self._release.alive
        self.close()

    def _finished(self, jobs: Jobs) -> Job | None:
        """The next batch; None at the end."""
        timeout = self._settings.timeout or None
        if not self._settled and (first := jobs.following()) is not None:
            self._settle(jobs, first, timeout)
        self._top_up(jobs)
        while (job := self._done.pop(self._next, None)) is None:
            if self._next == jobs.sent and jobs.following() is None:
                jobs.check()
                return None
            answers = self._crew.receive(timeout)
            if self._cut_off:
                raise _closed()
            if answers is None:
                raise too_slow(timeout, self._crew.unmade(self._next))
            for done in answers:
                self._take(jobs, done)
            self._top_up(jobs)
        if job.failures:  # raised in its place, behind the batches before it, however many workers there are
            self._crew.drop(job)
            raise self._error(job.failures[0])
        self._skipped.extend(job.skipped)  # likewise: in order, and of batches that are handed out
        for _, index, words in sorted(job.remarks):
            self._remark(self._reader.keys[index], words)
        jobs.done(self._next)
        self._next += 1
        return job

    def _take(self, jobs: Jobs, job: Job) -> None:
        """A job that came back: done, or with samples to be replaced."""
        wrong = [failure for failure in job.failures if issubclass(failure.kind, _NO_DAMAGE)]
        if not job.failures or wrong or self._settings.on_error == "raise":
            job.failures = wrong or job.failures
            self._done[job.ticket] = job
        else:
            self._mend(jobs, job)

    def _settle(self, jobs: Jobs, first: Job, timeout: float | None) -> None:
        """Find the layout out, from the first sample; with on_error="skip", from one that replaces it."""
        for attempt in range(_ATTEMPTS + 1):
            found = self._crew.lay_out(self._known, first.epoch, jobs.row(first.ticket, 0, attempt), timeout)
            if not isinstance(found, Failure):
                self._layout, self._settled = found, True
                return
            given_up = attempt == _ATTEMPTS or self._settings.on_error == "raise"
            if given_up or issubclass(found.kind, _NO_DAMAGE):
                raise self._error(found)

    def _top_up(self, jobs: Jobs) -> None:
        """Keep as many batches under way as the crew takes."""
        while self._again and self._crew.submit(self._again[0]):
            del self._again[0]
        while jobs.sent - self._next < self._crew.depth and (job := jobs.following()) is not None:
            if not self._crew.submit(job):
                return
            jobs.advance()

    def _mend(self, jobs: Jobs, job: Job) -> None:
        """Try other records in the place of those that failed."""
        for failure in job.failures:
            key, reason = self._told(failure)
            position = job.ticket, failure.row
            attempt = self._attempts[position] = self._attempts.get(position, 0) + 1
            if attempt > _ATTEMPTS:  # raised in its place, as any other error
                words = f"{_ATTEMPTS} records in a row failed, the last one {key!r} ({reason}); "
                words += "`fastdata verify` names all that are damaged"
                job.failures = [replace(failure, reason=words, kind=LoadError)]
                self._done[job.ticket] = job
                return
            job.skipped.append((key, reason))
            job.places[failure.row] = jobs.row(job.ticket, failure.row, attempt)[0]
        job.rows = [failure.row for failure in job.failures]
        job.failures = []
        self._again.append(job)

    def _told(self, failure: Failure) -> tuple[str, str]:
        """The key and the reason of a failure."""
        reason = failure.reason
        if not reason:  # no place could be told
            try:
                self._reader.image(failure.index)
            except FormatError as error:
                reason = str(error)
        return self._reader.keys[failure.index], reason

    def _error(self, failure: Failure) -> Exception:
        """The error to raise for a sample that could not be made."""
        name, reason = record_name(self._reader, failure.index), self._told(failure)[1]
        stack = f"\n\nThe stack where it was made:\n{failure.stack}" if failure.stack else ""
        return failure.kind(f"{reason if reason.startswith(name) else f'{name}: {reason}'}{stack}")

    def _images(self, job: Job) -> Any:
        assert self._layout is not None
        return self._layout.tensor(self._layout.batch(self._crew.hand_out(job), len(job)))


def _forgotten(done_with: Callable[[Crew, bool], None], crew: Crew) -> None:
    """What an iterator does that nobody holds any more."""
    with deferred_signals_in_finalizer():
        done_with(crew, True)


def _closed() -> LoadError:
    return LoadError("the loader was closed while it was being iterated; begin anew: iter(loader)")
