"""Iteration: one epoch. A schedule and a crew in, batches in order out."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import LoadError, WorkerError
from fastdata.formats import Reader
from fastdata.loader.crew import Crew, Job
from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure
from fastdata.loader.schedule import Schedule
from fastdata.loader.settings import FIELDS, Settings

if TYPE_CHECKING:
    from typing_extensions import Self

# Replacements that are tried for one sample. With half of a data set damaged, 32 in a row are one in 4 billion.
_ATTEMPTS = 32


class Iteration:
    """An iterator over the batches of one epoch. Leaving it early gives its crew back for the next one.

    Args:
        settings: of the loader.
        reader: for labels, keys and other fields.
        plan: the epoch's batches.
        crew: who makes them.
        release: called once with the crew and whether it may be used again.
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
        self._attempts: dict[tuple[int, int], int] = {}
        self._known = layout
        self._layout: Layout | None = None
        self._settled = False
        self._release = weakref.finalize(self, release, crew, True)
        self._release.atexit = False
        self._broken = release

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._plan)

    def __next__(self) -> Any:
        if not self._release.alive:
            raise StopIteration
        if self._next == len(self._plan):
            self._handed(self._next)
            self._release()
            raise StopIteration
        try:
            batch = self._batch(self._finished())
        except (WorkerError, KeyboardInterrupt):
            if self._release.detach() is not None:
                self._broken(self._crew, False)
            raise
        except BaseException:
            self.close()
            raise
        self._handed(self._next)
        return batch

    def close(self) -> None:
        """End the epoch here."""
        self._release()

    def _finished(self) -> Job:
        if not self._settled:
            self._settle()
        self._top_up()
        while (job := self._done.pop(self._next, None)) is None:
            timeout = self._settings.timeout or None
            jobs = self._crew.receive(timeout)
            if jobs is None:
                raise WorkerError(f"no batch within timeout={self._settings.timeout} seconds; is a transform stuck?")
            for done in jobs:
                if done.failures and self._settings.on_error == "skip":
                    self._mend(done)
                else:
                    self._done[done.ticket] = done
            self._top_up()
        if job.failures:  # raised in its place, behind the batches before it, however many workers there are
            self._crew.drop(job)
            raise error_of(job.failures[0])
        self._next += 1
        return job

    def _settle(self) -> None:
        """Find the layout out; with on_error="skip", from the first samples that can be made."""
        samples = self._plan.batch(self._next)[:_ATTEMPTS]
        for at in range(len(samples)):
            found = self._crew.lay_out(self._known, self._plan.epoch, samples[at:])
            if not isinstance(found, Failure):
                self._layout, self._settled = found, True
                return
            if self._settings.on_error == "raise" or at == len(samples) - 1:
                raise error_of(found)

    def _top_up(self) -> None:
        """Keep as many batches under way as the crew takes."""
        while self._sent < len(self._plan) and self._sent - self._next < self._crew.depth:
            if not self._crew.submit(Job(self._sent, self._plan.epoch, self._plan.batch(self._sent))):
                return
            self._sent += 1

    def _mend(self, job: Job) -> None:
        """Try other records in the place of those that failed."""
        for failure in job.failures:
            place = job.ticket, failure.row
            attempt = self._attempts[place] = self._attempts.get(place, 0) + 1
            if attempt > _ATTEMPTS:
                raise LoadError(
                    f"{_ATTEMPTS} records in a row failed, the last one {failure.key!r} ({failure.reason}); "
                    "`fastdata verify` names all that are damaged"
                )
            self._skipped.append((failure.key, failure.reason))
            job.indices[failure.row] = self._plan.replacement(job.ticket, failure.row, attempt)
        job.rows = [failure.row for failure in job.failures]
        job.failures = []
        if not self._crew.submit(job):
            raise LoadError("a crew refused a batch that it had; please report this")

    def _batch(self, job: Job) -> Any:
        settings = self._settings
        names = settings.fields or FIELDS
        if settings.collate_fn is not None:
            columns = [self._column(name, job, job.samples) for name in names]
            rows = zip(*columns, strict=True)
            return settings.collate_fn([dict(zip(names, row, strict=True)) if settings.fields else row for row in rows])
        parts = [self._images(job) if name == "image" else _stacked(self._column(name, job)) for name in names]
        self._top_up()  # before the consumer works on this batch
        return dict(zip(names, parts, strict=True)) if settings.fields else tuple(parts)

    def _images(self, job: Job) -> Any:
        assert self._layout is not None
        data = self._crew.hand_out(job)
        images = self._layout.tensor(self._layout.batch(data, len(job.indices)))
        return images.pin_memory() if self._settings.pin_memory else images

    def _column(self, name: str, job: Job, samples: list[Any] | None = None) -> Any:
        """One field of all samples: an int64 array, or a list."""
        if name == "image":
            return [picture_tensor(sample) for sample in samples or []]
        if name == "index":
            return job.indices
        if name == "label":
            labels = self._reader.labels[job.indices]
            return labels if self._label_of is None else [self._label_of(label) for label in labels.tolist()]
        if name == "key":
            return [self._reader.keys[index] for index in job.indices.tolist()]
        return [self._reader[index].fields.get(name) for index in job.indices.tolist()]


def error_of(failure: Failure) -> Exception:
    """The error to raise for a sample that could not be made."""
    words = f"record {failure.key!r}: {failure.reason}\n\nThe stack where it was made:\n{failure.stack}"
    return failure.kind(words) if issubclass(failure.kind, LoadError) else _as_kind(failure, words)


def _as_kind(failure: Failure, words: str) -> Exception:
    return LoadError(words) if failure.kind is RuntimeError else failure.kind(words)


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
        return torch.from_numpy(array).permute(2, 0, 1)
    return sample
