"""ThreadExecutor: batches made by threads of this process.

The threads are daemons: one that is stuck in a transform cannot be ended, and must not keep Python from ending. Those
of `concurrent.futures.ThreadPoolExecutor` are joined when Python ends.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from contextlib import nullcontext

from fastdata.errors import OptionError
from fastdata.loader.buffers import LocalBuffers
from fastdata.loader.executor import BatchRequest, BatchResult, make_batch
from fastdata.loader.failures import WorkerLost
from fastdata.loader.generators import abandon, kept_generators
from fastdata.loader.sample_maker import SampleMaker
from fastdata.loader.sample_spec import SampleSpec

# A thread cannot be killed. One that takes longer than this to end is stuck in a transform, and is left behind.
_GRACE_SECONDS = 2.0


class ThreadExecutor:
    """Makes batches in threads. OpenCV releases the GIL while it decodes; user callables run one at a time."""

    def __init__(self, spec: SampleSpec, workers: int, prefetch: int) -> None:
        self.depth = workers * prefetch
        self.owner: int | None = os.getpid()
        self.buffers = LocalBuffers()
        # The generators are kept around each call, so that decoding goes on beside it.
        self._maker = SampleMaker(spec, kept_generators if spec.calls else nullcontext, in_worker=True)
        self._generation = 0
        self._requests: queue.SimpleQueue[BatchRequest | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[int, BatchResult | Exception]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name="fastdata", daemon=True) for _ in range(workers)]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:  # there are no more threads
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            started = len(self._threads)
            self.close()
            raise OptionError(
                f"num_workers={workers}: thread {started + 1} could not be started ({error}); use fewer workers, or "
                "raise the limit (`ulimit -u`, `ulimit -v`)"
            ) from error

    def submit(self, request: BatchRequest) -> bool:
        self._generation = request.generation
        self._requests.put(request)
        return True

    def poll(self, timeout: float) -> list[BatchResult] | None:
        try:
            generation, result = self._results.get(timeout=timeout)
        except queue.Empty:
            return None
        if generation != self._generation:
            return []
        if isinstance(result, Exception):
            raise result
        return [result]

    def cancel(self) -> None:
        self._generation = 0

    def close(self) -> None:
        self.cancel()
        for _ in self._threads:
            self._requests.put(None)
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            abandon()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            if request.generation != self._generation:
                continue
            result: BatchResult | Exception
            try:
                result = BatchResult(request.batch_index, request.rows, make_batch(self._maker, request))
            except Exception as error:
                result = error
            except BaseException as error:  # not this thread's to follow
                what = f"a worker thread was ended by {error!r}"
                result = WorkerLost(what, request.locations[:, 0].tolist(), "the loader can be iterated again")
            self._results.put((request.generation, result))
            del request, result  # while it waits, a thread holds nobody's buffer
