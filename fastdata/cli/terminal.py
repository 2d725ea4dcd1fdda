"""Write the commands' output: printable text, whatever names it contains and wherever it goes.

A reader that has gone away (`| head`) ends the output, not the work, so that the exit code is still right.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

# Names listed one by one on a terminal; the rest are counted. (JSON and pipes get all.)
SHOWN = 20


def printable(text: str) -> str:
    """Text with every control character, line end, direction mark and undecodable byte escaped.

    >>> printable("a\\nb\\udcff")
    'a\\\\nb\\\\xff'
    """
    if text.isprintable():
        return text
    from fastdata.converters.report import escaped

    return "".join(c if c.isprintable() else escaped(c) for c in text)


def write_line(text: str = "") -> None:
    """Write a line to stdout. The text must be printable; it may contain line ends."""
    _write(sys.stdout, text + "\n")


def write_error(text: str) -> None:
    """Write one line to stderr."""
    _write(sys.stderr, printable(text) + "\n")


def write_json(value: Any) -> None:
    """Write a value as strict JSON."""
    from fastdata.converters.report import strict_json

    write_line(strict_json(value).decode("ascii").rstrip("\n"))


def flush() -> bool:
    """Flush the output; False, with an error on stderr, if stdout fails (disk full)."""
    if sys.stdout is None:  # it was closed before the start
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        write_error(f"error: standard output: {error.strerror}")
        return False
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
    return True


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # no console (pythonw, a detached service)
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        _drop(stream)
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, "standard output") from error


def _drop(stream: TextIO) -> None:
    """Redirect the stream to the null device, so that neither later lines nor the exit fail again."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values as aligned lines, without rich, whose import would slow a short command down."""
    items = [(printable(name), printable(str(value))) for name, value in rows]
    width = max((len(name) for name, _ in items), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in items)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> str:
    """A table drawn by rich; the first `left` columns are aligned left, the others right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = is_terminal(sys.stdout)
    plain = "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    grid = Table(
        title=Text(printable(title)) if title else None,
        title_justify="left",
        box=box.ASCII2 if plain else box.SIMPLE_HEAD,
    )
    for number, name in enumerate(columns):
        grid.add_column(Text(printable(name)), justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable(str(cell))) for cell in row))
    # In a pipe a table is as wide as it needs to be: nothing is cut or folded.
    width = shutil.get_terminal_size().columns if terminal else 100_000
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, legacy_windows=False)
    with console.capture() as capture:
        console.print(grid)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n")


def size_text(count: float) -> str:
    """Bytes as text: 999 B, 1.5 kB, 30 MB.

    >>> size_text(999), size_text(1500), size_text(29_960_000)
    ('999 B', '1.50 kB', '30.0 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:  # 1000 after rounding: use the next unit
            return f"{count:#.3g}".rstrip(".") + f" {unit}"
    return f"{count / 1000:#.3g} TB"
