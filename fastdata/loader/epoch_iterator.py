"""EpochIterator: one epoch. Requests go to an executor; its results are put in order, and what failed is replaced."""

from __future__ import annotations

import itertools
import math
import os
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.datasets.remarks import Remarks
from fastdata.errors import LoadError, WorkerError
from fastdata.formats.base import Reader
from fastdata.loader.batch import Batch
from fastdata.loader.batch_locations import BatchLocations
from fastdata.loader.collate import Collation
from fastdata.loader.executor import BatchRequest, BatchResult, Executor, Wants
from fastdata.loader.failures import WorkerLost, error_of, is_damage, key_and_reason
from fastdata.loader.passes import Pass
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.settings import Settings
from fastdata.signals import deferred_signals, deferred_signals_in_finalizer
from fastdata.turn import Turn

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastdata.loader.executor_pool import ExecutorPool

# Replacements that are tried for one sample. With half of a data set damaged, 32 in a row are one in 4 billion.
_ATTEMPTS = 32
# Whoever waits for a batch looks so often whether its iterator was closed by another thread.
_LOOK_SECONDS = 0.1
# How long whoever closes an iterator waits for a thread inside; it may be in a user's callable.
_GRACE_SECONDS = 2.0
_generations = itertools.count(1)


class EpochIterator:
    """An iterator over the batches of one epoch. Leaving it early gives its executor back for the next one.

    Args:
        settings: of the loader.
        reader: for keys, and the reasons of failures.
        course: the epoch's batches, and which is informed how many of them were handed out.
        pool: where its executor comes from, and goes back to.
        collation: makes batches of what comes back.
        spec: how samples are made. Where only a sample can tell the layout of images, the first request is for one row,
            and the others follow when its result has come.
        skipped: (key, reason) of samples that were replaced are added here, in order.
        remarks: likewise what decoders said of samples.
    """

    def __init__(
        self,
        settings: Settings,
        reader: Reader,
        course: Pass,
        pool: ExecutorPool,
        collation: Collation,
        *,
        spec: SampleSpec,
        skipped: list[tuple[str, str]],
        remarks: Remarks,
    ) -> None:
        self._settings, self._reader, self._pass, self._collation = settings, reader, course, collation
        self._spec, self._layout = spec, spec.layout
        self._skipped, self._remark = skipped, remarks.of_an_epoch()
        self._generation = next(_generations)
        self._locations: BatchLocations | None = None
        self._next = 0
        self._batches: dict[int, Batch] = {}
        self._waiting: deque[BatchRequest] = deque()  # requests that the executor has not taken yet
        self._closed = False
        self._turn = Turn()
        self._pool, self._executor = pool, pool.take()
        self._release = weakref.finalize(self, _forgotten, pool, self._executor)
        self._release.atexit = False

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._pass.schedule)

    def __next__(self) -> Any:
        if self._executor is not None and self._executor.owner not in (None, os.getpid()):
            raise WorkerError("this iterator belongs to the parent of this process; begin one here: iter(loader)")
        with self._turn:
            return self._following()

    def close(self) -> None:
        """End the epoch here. Whoever waits for a batch in another thread meanwhile gets an error."""
        if self._turn.take(0):
            try:
                self._leave(reusable=True)
            finally:
                self._turn.give_back()
            return
        self._closed = True
        if self._turn.mine:  # in a handler or a callable: `next` gives up when it goes on
            return
        left = self._turn.take(_GRACE_SECONDS)
        try:
            self._leave(reusable=False)
        finally:
            if left:
                self._turn.give_back()

    def cancel(self) -> None:
        """End the epoch because its loader is closed: going on is an error, not the end of the data."""
        self._closed = self._next != self._pass.schedule.total and self._release.alive
        self.close()

    def _following(self) -> Any:
        """The next batch."""
        if self._closed:
            raise _closed()
        if not self._release.alive:
            raise StopIteration
        try:
            if (batch := self._finished()) is not None:
                made = self._collation.batch(batch.locations[:, 0], self._images(batch), batch.columns())
                self._request_more()  # before the consumer works on this batch, and to know whether it is the last one
        except Exception as error:
            if self._closed:  # by another thread
                raise _closed() from error
            self._leave(reusable=not isinstance(error, (WorkerLost, WorkerError)))
            if isinstance(error, WorkerLost):
                raise error.named(self._reader) from error
            raise
        except BaseException as error:
            self._leave(reusable=not isinstance(error, KeyboardInterrupt))
            raise
        if batch is None:
            self._pass.end()
            self._leave(reusable=True)
            raise StopIteration
        self._pass.stands(self._next, over=self._next == self._pass.schedule.total)
        return made

    def _finished(self) -> Batch | None:
        """The next batch in order, once it is finished; None at the end."""
        if self._locations is None:  # the first batch is asked for: now it is settled which epoch this is
            self._pass.begin()
            self._locations = BatchLocations(self._settings, self._reader, self._spec, self._pass)
            self._next = self._locations.index
        self._request_more()
        while (batch := self._batches.get(self._next)) is None or not batch.finished:
            if batch is None:
                self._locations.check()
                return None
            self._receive()
            self._request_more()
        del self._batches[self._next]
        if batch.failures:  # raised in its place, behind the batches before it, however many workers there are
            raise error_of(self._reader, batch.failures[0])
        self._skipped.extend((key, reason) for _, _, key, reason in sorted(batch.skipped))
        for _, record, words in sorted(batch.remarks):
            self._remark(self._reader.keys[record], words)
        self._locations.done(self._next)
        self._next += 1
        return batch

    def _images(self, batch: Batch) -> Any:
        """The images of a finished batch: a tensor, or a list of them for a `collate_fn`; None without images."""
        if self._executor is None or not self._spec.image:
            return None
        if self._settings.collate_fn is not None:
            return [batch.samples[row] for row in range(len(batch.locations))]
        assert self._layout is not None
        assert batch.buffer is not None
        pixels = self._executor.buffers.lend(batch.buffer)
        return self._layout.tensor(self._layout.batch(pixels, len(batch.locations)))

    def _request_more(self) -> None:
        """Keep as many batches under way as the executor takes."""
        while self._waiting or self._begin_batch():
            assert self._executor is not None
            if not self._executor.submit(self._waiting[0]):
                return
            self._waiting.popleft()

    def _begin_batch(self) -> bool:
        """Request the next batch, if there is one and it is time for it."""
        depth = 1 if self._executor is None else self._executor.depth
        unknown = self._wants == "layout"
        if len(self._batches) >= depth or (unknown and self._batches) or self._locations is None:
            return False
        index = self._locations.index
        if (locations := self._locations.next()) is None:
            return False
        batch = self._batches[index] = Batch(index, locations, np.zeros(len(locations), np.bool_))
        if self._executor is None:  # there is nothing to be made
            batch.finished = True
            return False
        self._request(batch, np.arange(1 if unknown else len(locations)))
        return True

    @property
    def _wants(self) -> Wants:
        """What the next request is for."""
        if not self._spec.image:
            return "values"
        if self._settings.collate_fn is not None:
            return "samples"
        return "layout" if self._layout is None else "pixels"

    def _request(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Request some rows of a batch."""
        assert self._executor is not None
        wants = self._wants
        layout = self._layout if wants == "pixels" else None
        if layout is not None and batch.buffer is None:
            batch.buffer = self._executor.buffers.acquire(len(batch.locations), layout.nbytes)
        buffer = batch.buffer or self._executor.buffers.acquire(len(rows), 0)
        batch.missing[rows] = True
        self._waiting.append(
            BatchRequest(
                self._generation, batch.index, self._pass.schedule.epoch, batch.locations[rows], rows, buffer,
                layout, wants,
            )
        )  # fmt: skip

    def _receive(self) -> None:
        """Wait until something happens, and take what came."""
        assert self._executor is not None
        deadline = time.monotonic() + (self._settings.timeout or math.inf)
        while True:
            results = self._executor.poll(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
            if self._closed:
                raise _closed()
            if results is not None:
                break
            if time.monotonic() >= deadline:
                late = self._batches[self._next]
                what = f"no batch within timeout={self._settings.timeout} seconds"
                records = late.locations[late.missing, 0].tolist()
                raise WorkerLost(what, records, "is a transform stuck, or the storage slow?")
        for result in results:
            self._take(self._batches[result.batch_index], result)

    def _take(self, batch: Batch, result: BatchResult) -> None:
        """Add a result to its batch."""
        batch.take(result)
        if result.made.layout is not None:  # now the whole batch can be made
            self._layout = result.made.layout
            self._request(batch, np.arange(len(batch.locations)))
        elif batch.missing.any():
            return
        elif batch.failures:
            self._replace(batch)
        else:
            batch.finished = True

    def _replace(self, batch: Batch) -> None:
        """Request other records in the place of those that failed, or leave the failures to be raised."""
        assert self._locations is not None
        failures = sorted(batch.failures, key=lambda failure: failure.row)
        wrong = [failure for failure in failures if not is_damage(failure)]
        if wrong or self._settings.on_error == "raise":
            batch.failures, batch.finished = wrong or failures, True
            return
        for failure in failures:
            row, (key, reason) = failure.row, key_and_reason(self._reader, failure)
            attempt = batch.attempts[row] = batch.attempts.get(row, 0) + 1
            if attempt > _ATTEMPTS:
                words = f"{_ATTEMPTS} records in a row failed, the last one {key!r} ({reason}); "
                words += "`fastdata verify` names all that are damaged"
                batch.failures, batch.finished = [replace(failure, reason=words, kind=LoadError)], True
                return
            batch.skipped.append((attempt, row, key, reason))
            batch.locations[row] = self._locations.replacement(batch.index, row, attempt)[0]
        batch.failures = []
        self._request(batch, np.array([failure.row for failure in failures]))

    def _leave(self, *, reusable: bool) -> None:
        """Give the executor back, once. `reusable`: for another iterator."""
        with deferred_signals():
            if self._release.detach() is not None:
                self._waiting.clear()
                self._batches.clear()
                self._pool.give_back(self._executor, reusable=reusable)


def _forgotten(pool: ExecutorPool, executor: Executor | None) -> None:
    """What an iterator does that nobody holds any more."""
    with deferred_signals_in_finalizer():
        pool.give_back(executor, reusable=True)


def _closed() -> LoadError:
    return LoadError("the loader was closed while it was being iterated; begin anew: iter(loader)")
