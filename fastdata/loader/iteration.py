"""Iteration: one epoch. A schedule and a crew in, batches in order out."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError, LoadError, OptionError, ResourceError, WorkerError, as_resource_error
from fastdata.formats import Reader
from fastdata.formats.base import record_name
from fastdata.formats.checksum import UNCHECKED
from fastdata.formats.places import places_of
from fastdata.loader.crew import Crew, Job, too_slow
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure
from fastdata.loader.schedule import Schedule
from fastdata.loader.settings import FIELDS, Settings
from fastdata.transforms.callables import UserCall

if TYPE_CHECKING:
    from typing_extensions import Self

# Replacements that are tried for one sample. With half of a data set damaged, 32 in a row are one in 4 billion.
_ATTEMPTS = 32
# Failures that no other sample mends: wrong options, and a machine that has run out of something.
_NO_DAMAGE = (OptionError, ResourceError)


class Iteration:
    """An iterator over the batches of one epoch. Leaving it early gives its crew back for the next one.

    Args:
        settings: of the loader.
        reader: for labels, keys and other fields.
        plan: the epoch's batches.
        crew: who makes them.
        release: called once with the crew and whether it may be used again.
        first: the number of the batch to begin with.
        layout: of the samples, None where only a sample can tell.
        handed: called with the number of batches handed out so far.
        skipped: (key, reason) of samples that were replaced are added here.
        label_of: the user's target_transform.
    """

    def __init__(
        self,
        settings: Settings,
        reader: Reader,
        plan: Schedule,
        crew: Crew,
        release: Callable[[Crew, bool], None],
        *,
        first: int,
        layout: Layout | None,
        handed: Callable[[int], None],
        skipped: list[tuple[str, str]],
        label_of: Callable[[int], Any] | None,
    ) -> None:
        self._settings, self._reader, self._plan, self._crew = settings, reader, plan, crew
        self._handed, self._skipped, self._label_of = handed, skipped, label_of
        self._sent = self._next = first
        self._done: dict[int, Job] = {}
        self._again: list[Job] = []
        self._attempts: dict[tuple[int, int], int] = {}
        self._known = layout
        self._layout: Layout | None = None
        self._settled = False
        self._release = weakref.finalize(self, release, crew, True)
        self._release.atexit = False
        self._broken = release
        self._cut_off = False

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._plan)

    def __next__(self) -> Any:
        if self._crew.owner not in (None, os.getpid()):
            raise WorkerError("this iterator belongs to the parent of this process; begin one here: iter(loader)")
        if not self._release.alive:
            if self._cut_off:
                raise _closed()
            raise StopIteration
        if self._next == len(self._plan):
            self._handed(self._next)
            self._release()
            raise StopIteration
        try:
            batch = self._batch(self._finished())
        except Exception as error:
            if self._cut_off:  # by another thread
                raise _closed() from error
            self._give_up(broken=isinstance(error, WorkerError))
            raise
        except BaseException as error:
            self._give_up(broken=isinstance(error, KeyboardInterrupt))
            raise
        self._handed(self._next)
        return batch

    def _give_up(self, *, broken: bool) -> None:
        """End the epoch because of an error; whether the crew can be used again depends on which."""
        if not broken:
            self.close()
        elif self._release.detach() is not None:
            self._broken(self._crew, False)

    def close(self) -> None:
        """End the epoch here."""
        self._release()

    def cut_off(self) -> None:
        """End the epoch because its loader is closed: going on is an error, not the end of the data."""
        self._cut_off = self._next < len(self._plan) and self._release.alive
        self._release()

    def _finished(self) -> Job:
        timeout = self._settings.timeout or None
        if not self._settled:
            self._settle(timeout)
        self._top_up()
        while (job := self._done.pop(self._next, None)) is None:
            jobs = self._crew.receive(timeout)
            if self._cut_off:
                raise _closed()
            if jobs is None:
                raise too_slow(timeout)
            for done in jobs:
                self._take(done)
            self._top_up()
        if job.failures:  # raised in its place, behind the batches before it, however many workers there are
            self._crew.drop(job)
            raise self._error(job.failures[0])
        self._skipped.extend(job.skipped)  # likewise: in order, and of batches that are handed out
        self._next += 1
        return job

    def _take(self, job: Job) -> None:
        """A job that came back: done, or with samples to be replaced."""
        wrong = [failure for failure in job.failures if issubclass(failure.kind, _NO_DAMAGE)]
        if not job.failures or wrong or self._settings.on_error == "raise":
            job.failures = wrong or job.failures
            self._done[job.ticket] = job
        else:
            self._mend(job)

    def _settle(self, timeout: float | None) -> None:
        """Find the layout out, from the first sample; with on_error="skip", from one that replaces it."""
        for attempt in range(_ATTEMPTS + 1):
            first = self._plan.replacement(self._next, 0, attempt) if attempt else int(self._plan.batch(self._next)[0])
            found = self._crew.lay_out(self._known, self._plan.epoch, self._places([first]), timeout)
            if not isinstance(found, Failure):
                self._layout, self._settled = found, True
                return
            given_up = attempt == _ATTEMPTS or self._settings.on_error == "raise"
            if given_up or issubclass(found.kind, _NO_DAMAGE):
                raise self._error(found)

    def _top_up(self) -> None:
        """Keep as many batches under way as the crew takes."""
        while self._again and self._crew.submit(self._again[0]):
            del self._again[0]
        while self._sent < len(self._plan) and self._sent - self._next < self._crew.depth:
            if not self._crew.submit(Job(self._sent, self._plan.epoch, self._places(self._plan.batch(self._sent)))):
                return
            self._sent += 1

    def _mend(self, job: Job) -> None:
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
            job.places[failure.row] = self._places([self._plan.replacement(job.ticket, failure.row, attempt)])[0]
        job.rows = [failure.row for failure in job.failures]
        job.failures = []
        self._again.append(job)

    def _places(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        places = places_of(self._reader, np.asarray(indices, np.int64))
        if not self._settings.verify:
            places[:, 4] = UNCHECKED
        return places

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

    def _batch(self, job: Job) -> Any:
        settings = self._settings
        names = settings.fields or FIELDS
        batch: Any
        if settings.collate_fn is not None:
            columns = [self._column(name, job, job.samples) for name in names]
            rows: Any = zip(*columns, strict=True)
            if settings.fields:
                rows = (dict(zip(names, row, strict=True)) for row in rows)
            with UserCall(f"{self._reader.path}: collate_fn"):
                batch = settings.collate_fn(list(rows))
        else:
            parts = [self._images(job) if name == "image" else _stacked(self._column(name, job)) for name in names]
            batch = dict(zip(names, parts, strict=True)) if settings.fields else tuple(parts)
        if settings.pin_memory:
            batch = _pinned(batch)
        self._top_up()  # before the consumer works on this batch
        return batch

    def _images(self, job: Job) -> Any:
        assert self._layout is not None
        return self._layout.tensor(self._layout.batch(self._crew.hand_out(job), len(job)))

    def _transformed(self, label_of: Callable[[int], Any], indices: list[int], labels: list[int]) -> list[Any]:
        made = []
        for index, label in zip(indices, labels, strict=True):
            with UserCall(f"{record_name(self._reader, index)}: target_transform"):
                made.append(label_of(label))
        return made

    def _column(self, name: str, job: Job, samples: list[Any] | None = None) -> Any:
        """One field of all samples: an int64 array, or a list."""
        if name == "image":
            return [picture_tensor(sample) for sample in samples or []]
        if name == "index":
            return job.indices
        if name == "label":
            labels = self._reader.labels[job.indices]
            return (
                labels
                if self._label_of is None
                else self._transformed(self._label_of, job.indices.tolist(), labels.tolist())
            )
        if name == "key":
            return [self._reader.keys[index] for index in job.indices.tolist()]
        return [self._field(name, index) for index in job.indices.tolist()]

    def _field(self, name: str, index: int) -> Any:
        """A field that is no picture, of one record."""
        try:
            return self._reader[index].fields.get(name)
        except Exception as error:
            failed = as_resource_error(error, record_name(self._reader, index))
            if failed is None:
                raise
            raise failed from error


def _closed() -> LoadError:
    return LoadError("the loader was closed while it was being iterated; begin anew: iter(loader)")


def _pinned(batch: Any) -> Any:
    """A copy of every tensor in it, in torch's pinned memory."""
    import torch

    from fastdata.nest import map_tensors

    return map_tensors(batch, torch.Tensor.pin_memory)


def _stacked(column: Any) -> Any:
    """A column as a tensor where it holds numbers, else as it is."""
    import torch

    if isinstance(column, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(column))
    if column and all(isinstance(item, (int, float)) for item in column):
        return torch.tensor(column)
    if column and all(isinstance(item, torch.Tensor) for item in column):
        return torch.stack(column)
    return column


def picture_tensor(sample: Any) -> Any:
    """A sample for `collate_fn`: HWC arrays as CHW tensors, all else as it is."""
    import torch

    if isinstance(sample, np.ndarray) and sample.ndim == 3 and sample.dtype.kind in "biuf":
        array: NDArray[Any] = sample
        if not array.flags.writeable or min(array.strides) < 0:  # torch takes neither
            array = array.copy()
        return torch.from_numpy(array).permute(2, 0, 1)
    return sample
