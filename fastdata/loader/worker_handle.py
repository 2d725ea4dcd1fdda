"""WorkerHandle: one worker process of an executor, what it has been asked to make, and the error when it ends."""

from __future__ import annotations

import pickle
from collections import deque
from typing import Any, NamedTuple

from fastdata.loader.executor import BatchRequest
from fastdata.loader.failures import WorkerLost
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.start import start_worker
from fastdata.loader.worker import Answer, PartMessage
from fastdata.processes import death
from fastdata.processes.worker import WorkerProcess
from fastdata.sharedmem import SharedBlock

# A worker that was asked to end and does not is killed: it is decoding for nobody.
GRACE_SECONDS = 1.0


class RequestPart(NamedTuple):
    """The samples `first` .. `stop` of a request."""

    request: BatchRequest
    first: int
    stop: int


class WorkerHandle:
    """A worker process, and the parts of requests that it has not answered yet, oldest first."""

    def __init__(
        self, context: Any, block: SharedBlock, spec: SampleSpec, others: list[WorkerHandle], *, main: bool
    ) -> None:
        self.parts: deque[RequestPart] = deque()
        self.load = 0  # the samples that it has still to make
        self._block = block
        self._imports_main, self._lived = main, False
        connections = [other.process.connection for other in others]
        self.process: WorkerProcess = start_worker(context, block, spec, connections, main=main)

    def send(self, request: BatchRequest, first: int, stop: int) -> None:
        """Ask for a part of a request, which stands in its slot."""
        self.parts.append(RequestPart(request, first, stop))
        self.load += stop - first
        message = PartMessage(
            request.generation, request.epoch, self._block.size, request.buffer.offset, request.buffer.samples, first,
            stop, request.layout, request.wants,
        )  # fmt: skip
        try:
            self.process.connection.send_bytes(pickle.dumps(message))
        except OSError as error:
            raise self.death() from error

    def receive(self) -> tuple[RequestPart, Answer]:
        """The oldest part, and the answer to it."""
        try:
            blob = self.process.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self.death() from error
        self._lived = True
        part = self.parts.popleft()
        self.load -= part.stop - part.first
        return part, pickle.loads(blob)

    def end(self) -> None:
        """Tell it to end."""
        try:
            self.process.connection.send_bytes(pickle.dumps(None))
        except OSError:
            self.process.kill()

    def death(self) -> WorkerLost:
        """What to raise when the process has ended."""
        self.process.ended(GRACE_SECONDS)
        code = self.process.exit_code()
        what = f"loader worker (pid {self.process.pid}) {death.described(code)}"
        if self._imports_main and not self._lived and code == 1:
            return WorkerLost(
                f"{what} before it had started", (), "it imports your script, since a transform is defined there; put "
                'what the script does under `if __name__ == "__main__":`, or the transform into a module of its own',
            )  # fmt: skip
        records: list[int] = []
        if self.parts:
            request, first, stop = self.parts[0]
            records = request.locations[first:stop, 0].tolist()
        return WorkerLost(what, records, _advice(code, self._lived))


def _advice(code: int | None, lived: bool) -> str:
    """What to do about a death."""
    again = "the loader can be iterated again"
    known = death.advice(code, "fewer workers or smaller batches")
    if known:
        return f"{known}; {again}"
    if code is not None and code >= 0:
        why = "a transform ended it, or an error that stands on stderr"
        return f"{why}; {again}" if lived else f"{why}, before it had started"
    return again
