"""Member: one worker process of a crew, what it has been given to make, and what to say when it ends."""

from __future__ import annotations

import pickle
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastdata.loader.child import Child
from fastdata.loader.crew import Job, Lost
from fastdata.loader.sample_maker import SampleSpec
from fastdata.sharedmem import SharedBlock

# A worker that was told to end and does not is killed: it is decoding for nobody.
GRACE_SECONDS = 1.0
# What the kernel ends a process with that asks for memory there is none of.
_OUT_OF_MEMORY = {-getattr(signal, name) for name in ("SIGKILL", "SIGBUS") if hasattr(signal, name)}
_CRASHED = {-getattr(signal, name) for name in ("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE") if hasattr(signal, name)}


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
        self.child: Child = Child(context, block, spec, others=connections, main=main)

    @property
    def load(self) -> int:
        """The samples that it has still to make."""
        return sum(part.stop - part.first for part in self.parts if part is not None)

    def death(self, samples: Sequence[int] = ()) -> Lost:
        """What to raise when the process has ended. `samples`: the records that it had, where no part tells them."""
        self.child.ended(GRACE_SECONDS)
        code = self.child.code()
        had = next((part.samples for part in self.parts if part is not None), samples)
        what = f"loader worker (pid {self.child.pid}) {_described(code)}"
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


def _described(code: int | None) -> str:
    """An exit code in words.

    >>> _described(3), _described(-9)
    ('ended with exit code 3', 'was ended by signal 9 (SIGKILL)')
    """
    if code is None:
        return "has ended; its exit code was taken by another wait of this program"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"was ended by signal {-code}"


def _advice(code: int | None, lived: bool) -> str:
    """What to do about a death."""
    again = "the loader can be iterated again"
    if code in _OUT_OF_MEMORY:
        return f"often memory ran out: use fewer workers or smaller batches; {again}"
    if code in _CRASHED:
        return f"native code crashed, of a transform or a decoder; {again}"
    if code is not None and code >= 0:
        why = "a transform ended it, or an error that stands on stderr"
        return f"{why}; {again}" if lived else f"{why}, before it had begun"
    return again
