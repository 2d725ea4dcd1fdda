"""ProcessExecutor: batches made by worker processes, in shared memory; no pixel passes through a pipe.

A worker that dies is an error at once, and no worker outlives the executor.
"""

from __future__ import annotations

import itertools
import os
import time
from multiprocessing.connection import wait
from typing import Any

from fastdata.errors import OptionError, ResourceError, WorkerError
from fastdata.limits import refused
from fastdata.loader.buffers import PAGE, BatchBuffers
from fastdata.loader.executor import BatchRequest, BatchResult
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.start import check_main
from fastdata.loader.worker import want_generation
from fastdata.loader.worker_handle import GRACE_SECONDS, WorkerHandle
from fastdata.sharedmem import SharedBlock
from fastdata.signals import deferred_signals

# Messages on their way to one worker. Each is some 200 bytes and takes about 1 kB of a socket's buffer, of which Linux
# gives 208 kB and others less: sending one never waits for a worker, which may itself be waiting to send.
_MOST_UNDER_WAY = 32
# A batch is shared among the workers, so that the first one comes soon and all end at the same time, but not in parts
# smaller than this: each costs two messages, some 60 us of the main process.
_LEAST_PART = 32


class ProcessExecutor:
    """Makes batches in worker processes.

    Args:
        spec: how samples are made.
        workers: how many processes.
        prefetch: batches under way for each of them.
        context: a context of multiprocessing.
    """

    def __init__(self, spec: SampleSpec, workers: int, prefetch: int, context: Any) -> None:
        self.depth = workers * min(prefetch, _MOST_UNDER_WAY)
        self.owner: int | None = os.getpid()
        self._generation = 0
        main = check_main(spec, context.get_start_method())
        self._block = SharedBlock(PAGE)
        self.buffers = BatchBuffers(self._block, self.depth, spec.columns)
        self._workers: list[WorkerHandle] = []
        try:
            for _ in range(workers):
                with deferred_signals():  # a worker that was started is one of these, whatever comes
                    self._workers.append(WorkerHandle(context, self._block, spec, self._workers, main=main))
        except BaseException as error:
            started = len(self._workers)
            self.close()
            if not isinstance(error, (OSError, EOFError, MemoryError)):
                raise
            reason = None if isinstance(error, EOFError) else refused(error)
            if reason is None:
                raise WorkerError(f"worker {started + 1} of {workers} could not be started: {error!r}") from error
            raise OptionError(
                f"num_workers={workers}: worker {started + 1} could not be started, since {reason}; use fewer workers, "
                "or raise the limit"
            ) from error
        # What `wait` waits for: a worker's connection, and its end.
        self._by_handle: dict[Any, WorkerHandle] = {}
        for worker in self._workers:
            self._by_handle[worker.process.connection] = self._by_handle[worker.process.end] = worker

    def submit(self, request: BatchRequest) -> bool:
        count = len(request.rows)
        parts = min(len(self._workers), max(1, count // _LEAST_PART))
        if sum(_MOST_UNDER_WAY - len(worker.parts) for worker in self._workers) < parts:
            return False
        if request.generation != self._generation:
            self._want(request.generation)
        table = request.buffer.table
        table[:count, :-1] = request.locations
        table[:count, -1] = request.rows
        bounds = [count * part // parts for part in range(parts + 1)]
        for first, stop in itertools.pairwise(bounds):
            ready = (worker for worker in self._workers if len(worker.parts) < _MOST_UNDER_WAY)
            min(ready, key=lambda worker: worker.load).send(request, first, stop)
        return True

    def poll(self, timeout: float) -> list[BatchResult] | None:
        ready = wait(list(self._by_handle), timeout)
        if not ready:
            return None
        answered = [handle for handle in ready if not isinstance(handle, int)]  # ends are plain numbers
        if not answered:
            raise self._by_handle[ready[0]].death()
        results: list[BatchResult] = []
        for handle in answered:
            (request, first, stop), answer = self._by_handle[handle].receive()
            if request.generation != self._generation:
                continue
            if isinstance(answer, str):
                raise ResourceError(f"a loader worker has no room for the batches: {answer}")
            if answer is not None:
                results.append(BatchResult(request.batch_index, request.rows[first:stop], answer))
        return results

    def cancel(self) -> None:
        self._want(0)

    def close(self) -> None:
        with deferred_signals():
            self.cancel()
            for worker in self._workers:
                worker.end()
            deadline = time.monotonic() + GRACE_SECONDS
            for worker in self._workers:
                worker.process.close(deadline)
            self._workers = []
            self._by_handle = {}
            self._block.close()

    def _want(self, generation: int) -> None:
        """Requests of other generations are answered without being done, and the answers dropped."""
        self._generation = generation
        want_generation(self._block, generation)
