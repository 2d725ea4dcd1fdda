"""`fastdata verify`: check index, checksums and images of a data set, and report damage by key."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli.arguments import DataSet, ImageField, LabelField, MaxPixels, positive, reading

if TYPE_CHECKING:
    from fastdata.formats.base import Reader
    from fastdata.formats.verify import Problem

# Records per task: few enough for smooth progress, and so many that tasks cost nothing compared with decoding.
_CHUNK = 32


def command(
    path: DataSet,
    as_json: Annotated[bool, typer.Option("--json", help="Print all problems as strict JSON.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(parser=positive, metavar="N", help="Decoder threads.  [default: the cores this process may use]"),
    ] = None,
    max_pixels: MaxPixels = None,
    image_field: ImageField = None,
    label_field: LabelField = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress.")] = False,
) -> None:
    """Check every record of a data set: checksums, index, and that each image can be decoded.

    Damage is reported by key, with exit code 1. What decoders report on images that they can decode is a warning.
    """
    from fastdata.cli import FAILED
    from fastdata.cli.terminal import write_json
    from fastdata.cpus import default_workers
    from fastdata.formats import detect

    begin = time.perf_counter()
    options = reading(max_pixels=max_pixels, image_field=image_field, label_field=label_field)
    with detect.open(path, **options) as reader:
        listing = _Listing(silent=as_json)
        for problem in problems(reader, workers or default_workers(), progress=not quiet and not as_json):
            listing.add(problem)
        facts = {
            "path": reader.path, "count": len(reader), "damaged": len(listing.damaged),
            "problems_of_data_set": listing.own, "problems": listing.found, "warnings": listing.warnings,
        }  # fmt: skip
    seconds = time.perf_counter() - begin
    if as_json:
        write_json({**facts, "seconds": round(seconds, 3)})
    else:
        listing.end(len(reader), seconds)
    if listing.found:
        raise typer.Exit(FAILED)


def problems(reader: Reader, workers: int, *, progress: bool = False) -> Iterator[Problem]:
    """All problems: first those of the index and checksums, then images that cannot be decoded."""
    from fastdata.cli.measure import one_opencv_thread
    from fastdata.codec.decode import Rules
    from fastdata.formats.base import allowed_pixels
    from fastdata.formats.verify import problems_of
    from fastdata.progress import progress_bar

    yield from problems_of(reader)
    # By the conversion's own rules: what it kept on purpose is not damage.
    check = partial(_check, reader, asdict(Rules.of(reader.manifest.options, allowed_pixels(reader))))
    with (
        progress_bar(len(reader), "verify", "records", shown=progress) as bar,
        one_opencv_thread(),
        ThreadPoolExecutor(workers, thread_name_prefix="fastdata-verify") as pool,
    ):
        waiting: deque[tuple[int, Future[list[Problem]]]] = deque()
        try:
            for first in range(0, len(reader), _CHUNK):
                rows = range(first, min(first + _CHUNK, len(reader)))
                waiting.append((len(rows), _submit(pool, check, rows)))
                if len(waiting) > 2 * workers:  # two per thread keep all busy; more would only take memory
                    yield from _take(waiting, bar)
            while waiting:
                yield from _take(waiting, bar)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ThreadPoolExecutor, check: Callable[[range], list[Problem]], rows: range) -> Future[list[Problem]]:
    from fastdata.errors import raise_resource_error

    try:
        return pool.submit(check, rows)
    except RuntimeError as error:  # no thread can be started
        raise_resource_error(error, "verify")
        raise


def _take(waiting: deque[tuple[int, Future[list[Problem]]]], bar: Any) -> list[Problem]:
    count, future = waiting.popleft()
    found = future.result()
    bar.advance(count)
    return found


def _check(reader: Reader, decoding: dict[str, Any], rows: range) -> list[Problem]:
    from fastdata.errors import RecordError
    from fastdata.formats.base import record_name
    from fastdata.formats.verify import Problem, message_of, name_of

    found = []
    for row in rows:
        name = name_of(reader.keys, row)
        try:
            record = reader[row]
        except Exception as error:
            found.append(Problem(row, name, message_of(error, record_name(reader, row))))
            continue
        try:
            image = record.image_field
        except RecordError:
            image = ""
            found.append(Problem(row, name, f"no image: its fields are {sorted(record.fields)}"))
        for field, blob in record.fields.items():
            try:
                remarks = _check_field(field, blob, decoding, image=field == image)
            except Exception as error:  # whatever a decoder raises is this record's
                found.append(Problem(row, name, f"field {field!r}: {message_of(error, record_name(reader, row))}"))
            else:
                found += [Problem(row, name, f"field {field!r}: {remark}", harmless=True) for remark in remarks]
    return found


def _check_field(name: str, blob: bytes, decoding: dict[str, Any], *, image: bool) -> list[str]:
    """A decoder's warnings about a field. Raises an error if the content does not match the field's name.

    Fields of unknown kinds, and arrays beside the image, are not checked.
    """
    from fastdata.codec.decode import decode
    from fastdata.errors import FormatError
    from fastdata.record import parse_label

    kind, notes = name.rpartition(".")[2], list[str]()  # `mask.png` is a PNG
    if image or (_is_image(kind) and kind != "npy"):
        decode(blob, **decoding, notes=notes)
    elif kind == "cls":
        parse_label("", blob)
    elif kind == "json":
        try:
            json.loads(blob)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not JSON, or nested too deeply: {error}") from error
    return notes


def _is_image(kind: str) -> bool:
    """Whether a field of this kind should hold an image, even of a kind that fastdata does not read."""
    from fastdata.codec.sniff import IMAGE_SUFFIXES
    from fastdata.record import IMAGE_FIELDS

    return kind in IMAGE_FIELDS or f".{kind}" in IMAGE_SUFFIXES


class _Listing:
    """The problems found. Each is written when it is found; on a terminal, only the first ones."""

    # A terminal shows no more than a screen or two; in a pipe and in JSON the list is complete.
    _most = 50

    def __init__(self, silent: bool) -> None:
        from fastdata.cli.terminal import is_terminal

        self._silent, self._terminal = silent, is_terminal(sys.stdout)
        self.found: list[dict[str, str]] = []
        self.warnings: list[dict[str, str]] = []
        self._reported = 0
        self.damaged: set[int] = set()  # records; each once, however many problems it has
        self.own = 0  # problems of the data set as a whole
        self._seen: set[Problem] = set()

    def add(self, problem: Problem) -> None:
        from fastdata.cli.terminal import printable, write_line
        from fastdata.formats.verify import DATA_SET

        if problem in self._seen:  # both passes find what cannot be read
            return
        self._seen.add(problem)
        if problem.harmless:
            self.warnings.append({"name": problem.name, "warning": problem.message})
        else:
            self.found.append({"name": problem.name, "problem": problem.message})
            if problem.row == DATA_SET:
                self.own += 1
            else:
                self.damaged.add(problem.row)
        self._reported += 1
        if not self._silent and not (self._terminal and self._reported > self._most):
            word = "warning: " if problem.harmless else ""
            write_line(f"{word}{printable(problem.name)}: {printable(problem.message)}")

    def end(self, count: int, seconds: float) -> None:
        from fastdata.cli.terminal import write_line

        hidden = self._reported - self._most if self._terminal else 0
        if hidden > 0:
            write_line(f"... and {hidden:,} more; --json lists them all")
        warned = f", {len(self.warnings):,} warning{'' if len(self.warnings) == 1 else 's'}" if self.warnings else ""
        if self.found:
            own = f", {self.own:,} of them of the data set itself" if self.own else ""
            damaged = f"{len(self.damaged):,} damaged of {count:,} records"
            many = "" if len(self.found) == 1 else "s"
            write_line(f"{damaged}, {len(self.found):,} problem{many}{own}{warned} ({seconds:.1f} s)")
        else:
            write_line(f"{count:,} records, no damage found{warned} ({seconds:.1f} s)")
