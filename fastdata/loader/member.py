"""Member: one worker process of a crew, what it has been given to make, and what to say when it ends."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastdata.loader.crew import Job, Lost
from fastdata.loader.sample_maker import SampleSpec
from fastdata.loader.start import start_worker
from fastdata.processes import death
from fastdata.processes.worker import WorkerProcess
from fastdata.sharedmem import SharedBlock

# A worker that was told to end and does not is killed: it is decoding for nobody.
GRACE_SECONDS = 1.0


class Part(NamedTuple):
    """The samples `first` .. `stop` of what a job wants."""

    job: Job
    first: int
    stop: int

    @property
    def samples(self) -> list[int]:
        """The numbers of the records."""
        return self.job.wanted[self.first : self.stop, 0].tolist()  # type: ignore[no-any-return]


class Member:
    """A worker process, and the parts of jobs that it has not answered yet, oldest first."""

    def __init__(self, context: Any, block: SharedBlock, spec: SampleSpec, others: list[Member], *, main: bool) -> None:
        self.parts: deque[Part | None] = deque()  # None: a message whose answer says nothing
        self._imports_main, self._lived = main, False
        connections = [other.child.connection for other in others]
        self.child: WorkerProcess = start_worker(context, block, spec, connections, main=main)

    @property
    def load(self) -> int:
        """The samples that it has still to make."""
        return sum(part.stop - part.first for part in self.parts if part is not None)

    def death(self, samples: Sequence[int] = ()) -> Lost:
        """What to raise when the process has ended. `samples`: the records that it had, where no part tells them."""
        self.child.ended(GRACE_SECONDS)
        code = self.child.exit_code()
        had = next((part.samples for part in self.parts if part is not None), samples)
        what = f"loader worker (pid {self.child.pid}) {death.described(code)}"
        if self._imports_main and not self._lived and code == 1:
            return Lost(
                f"{what} before it had begun", (), "it imports your script, since a transform is defined there; put "
                'what the script does under `if __name__ == "__main__":`, or the transform into a module of its own',
            )  # fmt: skip
        return Lost(what, had, _advice(code, self._lived))

    def tell(self, message: tuple[Any, ...], samples: Sequence[int] = ()) -> None:
        try:
            self.child.connection.send(message)
        except OSError as error:
            raise self.death(samples) from error

    def heard(self, samples: Sequence[int] = ()) -> Any:
        try:
            blob = self.child.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self.death(samples) from error
        self._lived = True
        return pickle.loads(blob)


def _advice(code: int | None, lived: bool) -> str:
    """What to do about a death."""
    again = "the loader can be iterated again"
    known = death.advice(code, "fewer workers or smaller batches")
    if known:
        return f"{known}; {again}"
    if code is not None and code >= 0:
        why = "a transform ended it, or an error that stands on stderr"
        return f"{why}; {again}" if lived else f"{why}, before it had begun"
    return again
