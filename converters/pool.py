"""Pool: call a function on many items in several processes.

In: items. Out: answers, in the order of the items. Promises: the order never depends on the number of workers; memory
is bounded (a window of early answers, in number and bytes); workers are new interpreters without the user's main
module, never forks; they end with the pool or with the parent, whatever ends that; a worker that dies raises an error
at once, which says how it died and which items it had.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.connection import wait
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastdata.converters.memory_limit import LargeImageLimit, limit_for
from fastdata.converters.worker import Answer, Bug, OutOfResources, Setup, serve
from fastdata.errors import ConvertError
from fastdata.processes import death, fresh
from fastdata.signals import deferred_signals

if TYPE_CHECKING:
    from typing_extensions import Self

# Items per message: 8 share the cost of a message (then 8 us a record), and a slow item delays few others.
CHUNK = 8
# Lists of items that a worker may hold: one at work and one waiting, so that it never waits for the parent.
_AHEAD = 2
# Early answers that are kept, in number (per worker) and in bytes (in total): many small images can overtake a slow one
# before a worker waits, and a hundred large ones do not pile up.
_WINDOW_ITEMS = 256
_WINDOW_BYTES = 128 << 20
# Items named in an error.
_SHOWN = 8
# How long a worker may take to end before it is killed. Its work is done by then.
_GRACE_SECONDS = 5.0


class Pool:
    """Worker processes that each call `target(*arguments)` once to make a function, and that function on items.

    Args:
        workers: the largest number of processes.
        target: "module:name" of a callable that makes the function, which returns a value and its size in bytes.
        arguments: picklable arguments of the target.
        max_pixels: the largest image that the function decodes, 0 if none; it determines how many large images may be
            in memory at once.
    """

    def __init__(self, workers: int, target: str, arguments: Sequence[Any] = (), *, max_pixels: int = 0) -> None:
        self._most = workers
        self._workers: list[_Worker] = []
        self._limit = limit_for(workers, max_pixels)
        self._setup = Setup(target, tuple(arguments), self._limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(kill=kind is not None)

    @property
    def size(self) -> int:
        """The number of processes that were started."""
        return len(self._workers)

    def start(self, count: int) -> None:
        """Start processes until there are `count`, or as many as allowed. They get ready while the caller works."""
        while len(self._workers) < min(count, self._most):
            with deferred_signals():  # so that a worker that was started is always in the list
                self._workers.append(_Worker(self._setup))

    def close(self, *, kill: bool = False) -> None:
        """End every process and wait for it. `kill`: at once, since they hold nothing that could be lost."""
        for worker in self._workers:
            worker.finish(kill)
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._workers:
            self._workers.pop().process.close(deadline)
        self._limit.close()
        self._limit = LargeImageLimit()

    def map(self, items: Iterable[Any], *, chunk: int = CHUNK) -> Iterator[Answer]:
        """The answer for every item, in order.

        Raises:
            ConvertError: a worker died, its function raised an error, or the machine ran out of a resource.
        """
        self.start(1)
        window = _Window(self._workers, chunk)
        batches = _batches(items, chunk)
        more = True
        while more or window.open:
            while more and (idle := window.idle()) is not None:
                batch = next(batches, None)
                if batch is None:
                    more = False
                    for worker in self._workers:
                        worker.send_end()
                else:
                    window.dispatch(idle, batch)
            if window.open:
                yield from window.ready()
            if window.open:
                window.receive()


def _batches(items: Iterable[Any], chunk: int) -> Iterator[list[Any]]:
    source = iter(items)
    while batch := list(islice(source, chunk)):
        yield batch


class _Window:
    """The items being worked on: which worker has which, and the answers that came before their turn."""

    def __init__(self, workers: Sequence[_Worker], chunk: int) -> None:
        self._workers, self._chunk = workers, chunk
        self._limit = _WINDOW_ITEMS * len(workers)
        self._sent = 0
        self._next = 0
        self._early: dict[int, Answer] = {}
        self.held = 0

    @property
    def open(self) -> int:
        """The number of items that were sent and whose answers were not yielded yet."""
        return self._sent - self._next

    def idle(self) -> _Worker | None:
        """The worker with the fewest items, if it can take more and the window has room."""
        if self.held >= _WINDOW_BYTES or self.open >= self._limit:
            return None
        worker = min(self._workers, key=lambda each: len(each.pending))
        return worker if len(worker.pending) <= (_AHEAD - 1) * self._chunk else None

    def dispatch(self, worker: _Worker, batch: list[Any]) -> None:
        worker.send(batch, self._sent)
        self._sent += len(batch)

    def ready(self) -> Iterator[Answer]:
        """The answers that are next in order."""
        while (answer := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self.held -= answer.nbytes
            yield answer

    def receive(self) -> None:
        """Wait for a message and keep its answers.

        If the window is full, only the worker that has the next item is read from. It answers in order, so its next
        answer is that of the next item; the others wait in their sends meanwhile, and the window stops growing.
        """
        busy = [worker for worker in self._workers if worker.pending]
        if self.held >= _WINDOW_BYTES:
            busy = [worker for worker in busy if worker.pending[0][0] == self._next]
        ready = wait([handle for worker in busy for handle in (worker.process.connection, worker.process.end)])
        for worker in busy:
            if worker.process.connection in ready or worker.process.end in ready:
                for number, answer in worker.receive():
                    self._early[number] = answer
                    self.held += answer.nbytes


class _Worker:
    """A process and the items that it has not answered yet, oldest first."""

    def __init__(self, setup: Setup) -> None:
        self.process = fresh.start(serve, setup.limit.descriptors)
        self.pending: deque[tuple[int, Any]] = deque()
        self._ended = False
        self._send_message(setup)

    def send(self, batch: list[Any], first: int) -> None:
        self.pending.extend(enumerate(batch, first))
        self._send_message(batch)

    def send_end(self) -> None:
        """Announce that no items follow; the process ends by itself after its last one."""
        if not self._ended:
            self._ended = True
            self._send_message(None)

    def receive(self) -> list[tuple[int, Answer]]:
        """The next message: answers with the numbers of their items.

        Raises:
            ConvertError: the process died, its function raised an error, or the machine ran out of a resource.
        """
        try:
            if not self.process.connection.poll() and self.process.ended(0):
                raise EOFError  # a fork of the program may keep the connection open
            message = pickle.loads(self.process.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._death() from error
        if isinstance(message, Bug):
            raise ConvertError(
                f"{message.item}: unexpected {message.error} (this is a bug in fastdata; please report it with the "
                "lines below)",
                message.trace.rstrip(),
            )
        if isinstance(message, OutOfResources):
            raise ConvertError(f"{message.reason}. Nothing was written.")
        return [(self.pending.popleft()[0], answer) for answer in message]

    def finish(self, kill: bool) -> None:
        if kill:
            self.process.kill()
            return
        with contextlib.suppress(ConvertError):
            self.send_end()

    def _send_message(self, message: object) -> None:
        try:
            self.process.connection.send(message)
        except OSError as error:
            raise self._death() from error

    def _death(self) -> ConvertError:
        if not self.process.ended(_GRACE_SECONDS):  # it closed its end of the connection and still runs
            self.process.kill()
            self.process.ended(_GRACE_SECONDS)
        code = self.process.exit_code()
        advice = death.advice(code, "fewer --workers")
        how = death.described(code) + (f" ({advice})" if advice else "")
        names = ", ".join(str(item) for _, item in islice(self.pending, _SHOWN))
        what = f" while it had {names}" if names else " as it started"
        log = self.process.log_tail()
        outcome = f"Nothing was written.{' The end of its log:' if log else ''}"
        return ConvertError(f"a conversion worker {how}{what}. {outcome}", log)
