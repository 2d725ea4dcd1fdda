"""A side of `scripts/bench load` as seen from outside: a child process that answers on its pipes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import Any, NamedTuple

from load_sides import Side

_SIDES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sides")
# A side that says nothing for so long hangs: writing FFCV's file and the slowest epoch take a few minutes.
_PATIENCE = 1800
# The workers are the parallelism: no library is to start threads of its own besides.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class SideError(Exception):
    """A side cannot be measured; the message says why, its last line in short."""


class Epoch(NamedTuple):
    """Images per second, and seconds of processor time for an image in all processes of the side (0: not known)."""

    rate: float
    processor: float


class Process:
    """Runs a side's program from `with` on; what it prints is kept and told only with an error."""

    def __init__(self, side: Side, python: str | None) -> None:
        self.facts: dict[str, Any] = {}
        self._side = side
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._child = subprocess.Popen(
            [python or sys.executable, os.path.join(_SIDES, f"{side.script}.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=_environment(python is None),
        )  # fmt: skip
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._jobs, self._answers = self._child.stdin, self._child.stdout

    def prepare(self, job: dict[str, Any]) -> None:
        """Tell it what it is to measure."""
        self.facts = self._ask({"do": "prepare", **job})["facts"]

    def epoch(self, number: int, count: int) -> Epoch:
        """One epoch, which must have `count` samples (or a whole last batch)."""
        before = _processor_seconds(self._child.pid)
        answer = self._ask({"do": "epoch", "number": number})
        samples = answer["samples"]
        if samples < count:
            raise SideError(f"its epoch had {samples} samples of {count}")
        used = _processor_seconds(self._child.pid) - before
        return Epoch(samples / answer["seconds"], used / samples)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:  # threads of a library that do not end
            self._child.kill()
            self._child.wait()
        self._answers.close()
        self._log.close()

    def _ask(self, job: dict[str, Any]) -> Any:
        watch = threading.Timer(_PATIENCE, self._child.kill)
        watch.start()
        try:
            self._jobs.write(json.dumps(job) + "\n")
            self._jobs.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watch.cancel()
        if not answer:
            raise SideError(f"{self._said()}\nit ended with {self._child.wait()}")
        told = json.loads(answer)
        if "error" in told:
            raise SideError(told["error"])
        return told

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]


def _environment(own: bool) -> dict[str, str]:
    """One thread a library; only fastdata's own environment sees its packages."""
    kept = {name: value for name, value in os.environ.items() if own or name != "PYTHONPATH"}
    return kept | _ONE_THREAD


def _processor_seconds(root: int) -> float:
    """What a process, those below it, and those of them that have ended, have used; 0 where /proc does not tell."""
    try:
        ids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return 0.0
    parents, used = {}, {}
    for one in ids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            with open(f"/proc/{one}/stat", encoding="utf-8", errors="replace") as file:
                # Behind the name in brackets: state, parent, ...; user, system, and both of ended children.
                fields = file.read().rpartition(")")[2].split()
            parents[one], used[one] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {root}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used.get(one, 0) for one in family) / ticks
