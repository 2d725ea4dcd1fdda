"""Show the progress of a long job on stderr, as a bar or as plain lines.

On a terminal rich draws a bar with the rate and the time left; elsewhere a line is written now and then, so that logs
stay readable. Nothing is shown unless asked for. `advance` costs under a microsecond between two refreshes, and rich is
imported only if there is a terminal to draw on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self

# Often enough to look alive, rarely enough that drawing (about 2 ms) stays under 1 % of a core.
_REDRAW_SECONDS = 0.25
# The first plain line comes early (it shows that the job runs), later ones rarely (a day's log stays short).
_FIRST_LINE_SECONDS = 2.0
_LINE_SECONDS = 15.0


def progress_bar(total: int | None, label: str, unit: str = "images", *, shown: bool = False) -> Progress:
    """Return an object to `advance` while a job runs; use it in a `with`.

    Args:
        total: how many items there are, None if unknown.
        label: what is being done, in one or two words.
        unit: what is counted.
        shown: whether to show it; the library shows nothing unless asked.
    """
    stream = sys.stderr
    if not shown or stream is None:
        return Progress(total, label, unit)
    if _is_terminal(stream):
        return _Bar(total, label, unit, stream)
    return _Lines(total, label, unit, stream)


class Progress:
    """Count without showing anything; the base class of those that show something."""

    def __init__(self, total: int | None, label: str, unit: str) -> None:
        self.total, self.label, self.unit = total, label, unit
        self.done = 0
        self._begin = time.monotonic()

    def advance(self, count: int = 1) -> None:
        """Record `count` more finished items."""
        self.done += count

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def describe(self) -> str:
        """One line: the count, the rate and the time left.

        >>> Progress(10, "convert", "images").describe()
        'convert: 0 of 10 images'
        """
        of = "" if self.total is None else f" of {self.total:,}"
        line = f"{self.label}: {self.done:,}{of} {self.unit}"
        seconds = time.monotonic() - self._begin
        if self.done == 0 or seconds <= 0:
            return line
        rate = self.done / seconds
        line += f", {rate:,.0f} {self.unit}/s" if rate >= 10 else f", {rate:.2g} {self.unit}/s"
        left = 0 if self.total is None else self.total - self.done
        return f"{line}, {_clock(left / rate)} left" if left > 0 else f"{line}, {_clock(seconds)}"


class _Lines(Progress):
    """A plain line now and then, and one at the end."""

    def __init__(self, total: int | None, label: str, unit: str, stream: TextIO) -> None:
        super().__init__(total, label, unit)
        self._stream = stream
        self._due = self._begin + _FIRST_LINE_SECONDS

    def advance(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _LINE_SECONDS
            self._write_line()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_line()

    def _write_line(self) -> None:
        try:
            self._stream.write(self.describe() + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # the reader is gone: that must not end the work
            self._due = float("inf")


class _Bar(Progress):
    """rich's bar. It has no thread of its own: `advance` redraws when it is time."""

    def __init__(self, total: int | None, label: str, unit: str, stream: TextIO) -> None:
        super().__init__(total, label, unit)
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Any) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{speed:,.0f} {unit}/s", style="progress.data.speed")

        self._bar = RichProgress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.completed:,.0f}" if total is None else "{task.completed:,.0f} of {task.total:,.0f}"),
            Rate(), TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(file=stream), auto_refresh=False,
        )  # fmt: skip
        self._task = self._bar.add_task(label, total=total)
        self._due = 0.0

    def __enter__(self) -> Self:
        super().__enter__()
        with self._watched():
            self._bar.start()
            self._bar.refresh()
        return self

    def advance(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _REDRAW_SECONDS
            with self._watched():
                self._bar.update(self._task, completed=self.done, refresh=True)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A terminal that was closed must not end the work."""
        try:
            yield
        except (OSError, ValueError):
            self._due = float("inf")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._watched():
            self._bar.update(self._task, completed=self.done)
            self._bar.stop()  # draws a last time and restores the cursor


def _clock(seconds: float) -> str:
    """Seconds in a readable form: 0.8 s, 42 s, 3 min 05 s, 2 h 07 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False
