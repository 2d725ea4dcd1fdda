"""Executors make batches: requests go in, results come out, in any order.

`InlineExecutor` decodes in the caller, `fastdata.loader.thread_executor.ThreadExecutor` in threads and
`fastdata.loader.process_executor.ProcessExecutor` in worker processes. All make the same batches, by `make_batch`.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.locations import Locations
from fastdata.loader.buffers import BatchBuffers, Buffer, LocalBuffers
from fastdata.loader.generators import kept_generators
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import Made
from fastdata.loader.sample_maker import SampleMaker
from fastdata.loader.sample_spec import SampleSpec

# What a request is for. "pixels": images in the buffer of a batch. "samples": images one by one, for a `collate_fn`.
# "values": samples without images. "layout": how images lie in a batch, which only the first one can tell; no samples.
Wants = Literal["pixels", "samples", "values", "layout"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchRequest:
    """A batch to be made, or some rows of it.

    Attributes:
        generation: which iterator asks. What earlier ones asked for is dropped.
        batch_index: the batch's number in the epoch.
        epoch: for the random numbers.
        locations: for each sample a row; see `fastdata.loader.sample_log`.
        rows: where these samples belong in the batch.
        buffer: the memory of the whole batch.
        layout: how images lie in it, for "pixels".
        wants: what is to be made.
    """

    generation: int
    batch_index: int
    epoch: int
    locations: Locations
    rows: NDArray[np.int64]
    buffer: Buffer
    layout: Layout | None
    wants: Wants


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What came of a request, or of a part of it.

    Attributes:
        batch_index: that of the request.
        rows: the rows of the batch that were tried.
        made: what came of them; its lists are in the order of `rows`.
    """

    batch_index: int
    rows: NDArray[np.int64]
    made: Made


class Executor(Protocol):
    """Makes batches, for one iterator at a time.

    Attributes:
        depth: how many batches it wants under way at a time.
        owner: the process that it belongs to, whose forks must leave it alone; None if it can be used in any.
        buffers: the memory for its batches.
    """

    depth: int
    owner: int | None

    @property
    def buffers(self) -> BatchBuffers | LocalBuffers: ...

    def submit(self, request: BatchRequest) -> bool:
        """Take a request; False when there is no room for it yet. Requests of other generations are cancelled.

        Raises:
            WorkerLost: a worker ended.
        """
        ...

    def poll(self, timeout: float) -> list[BatchResult] | None:
        """Wait until something happens: results, or none but room for requests; None after `timeout` seconds.

        Raises:
            WorkerLost: a worker ended.
        """
        ...

    def cancel(self) -> None:
        """Drop all requests: those that have not started are not done, and no results come."""
        ...

    def close(self) -> None:
        """Cancel everything and end the workers."""
        ...


def make_batch(maker: SampleMaker, request: BatchRequest) -> Made:
    """Do what a request asks for."""
    epoch, locations, rows = request.epoch, request.locations, request.rows.tolist()
    if request.wants == "pixels":
        assert request.layout is not None
        batch = request.layout.batch(request.buffer.pixels, request.buffer.samples)
        return maker.fill(epoch, locations, batch, request.layout, rows)
    if request.wants == "samples":
        return maker.samples(epoch, locations, rows)
    if request.wants == "values":
        return maker.values(epoch, locations, rows)
    return maker.layout(epoch, locations)


class InlineExecutor:
    """Makes a batch in the caller, when it is asked for. The process's own generators are left as they were."""

    def __init__(self, spec: SampleSpec) -> None:
        self.depth = 1
        self.owner: int | None = None
        self.buffers = LocalBuffers()
        self._maker = SampleMaker(spec)
        self._keep = kept_generators if spec.calls else nullcontext
        self._requests: deque[BatchRequest] = deque()

    def submit(self, request: BatchRequest) -> bool:
        self._requests.append(request)
        return True

    def poll(self, timeout: float) -> list[BatchResult] | None:  # noqa: ARG002  # nobody else is waited for
        request = self._requests.popleft()
        with self._keep():
            return [BatchResult(request.batch_index, request.rows, make_batch(self._maker, request))]

    def cancel(self) -> None:
        self._requests.clear()

    def close(self) -> None:
        self.cancel()
