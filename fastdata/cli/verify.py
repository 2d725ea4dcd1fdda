"""`fastdata verify`: a data set flows in, index, checksums and pictures are tried, damage flows out by key."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli.arguments import DataSet, positive

if TYPE_CHECKING:
    from fastdata.formats.base import Reader

# Records a task: small enough for a lively bar, large enough that handing tasks over costs nothing beside decoding.
_CHUNK = 32


def command(
    path: DataSet,
    as_json: Annotated[bool, typer.Option("--json", help="All problems, as strict JSON.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            parser=positive, metavar="N", help="Threads that decode.  [default: the cores this process may use]"
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Check every record of a data set: checksums, index against data, and that each picture can be decoded.

    Damage is named by key; the exit code is then 1.
    """
    from fastdata import formats
    from fastdata.cli import FAILED
    from fastdata.cli.terminal import say_json
    from fastdata.cpus import available_cpus

    begin = time.perf_counter()
    with formats.open(path) as reader:
        listing = _Listing(silent=as_json)
        for name, problem in problems(reader, workers or available_cpus(), quiet or as_json):
            listing.add(name, problem)
        facts = {"path": reader.path, "count": len(reader), "damaged": len(listing.names), "problems": listing.found}
    seconds = time.perf_counter() - begin
    if as_json:
        say_json({**facts, "seconds": round(seconds, 3)})
    else:
        listing.end(len(reader), seconds)
    if listing.found:
        raise typer.Exit(FAILED)


def problems(reader: Reader, workers: int, quiet: bool) -> Iterator[tuple[str, str]]:
    """All problems as (key or file, what is wrong): first checksums and index, then what cannot be decoded."""
    from fastdata.cli.measure import one_opencv_thread
    from fastdata.codec.decode import Rules
    from fastdata.formats.base import allowed_pixels
    from fastdata.progress import progress

    yield from reader.verify()
    # By the conversion's own rules: what it let in on purpose is no damage.
    check = partial(_check, reader, asdict(Rules.of(reader.manifest.options, allowed_pixels(reader))))
    with (
        progress(len(reader), "verify", "records", quiet=quiet) as bar,
        one_opencv_thread(),
        ThreadPoolExecutor(workers, thread_name_prefix="fastdata-verify") as pool,
    ):
        waiting: deque[tuple[int, Future[list[tuple[str, str]]]]] = deque()
        try:
            for first in range(0, len(reader), _CHUNK):
                rows = range(first, min(first + _CHUNK, len(reader)))
                waiting.append((len(rows), pool.submit(check, rows)))
                if len(waiting) > 2 * workers:  # two a thread keep all busy; more would only hold memory
                    yield from _take(waiting, bar)
            while waiting:
                yield from _take(waiting, bar)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _take(waiting: deque[tuple[int, Future[list[tuple[str, str]]]]], bar: Any) -> list[tuple[str, str]]:
    count, future = waiting.popleft()
    found = future.result()
    bar.advance(count)
    return found


def _check(reader: Reader, decoding: dict[str, Any], rows: range) -> list[tuple[str, str]]:
    from fastdata.errors import FastdataError

    found = []
    for row in rows:
        try:
            record = reader[row]
        except (FastdataError, OSError) as error:
            found.append((reader.keys[row], str(error)))
            continue
        if not any(_is_picture(name) for name in record.fields):
            found.append((record.key, f"no picture: its fields are {sorted(record.fields)}"))
        for name, blob in record.fields.items():
            problem = _field_problem(name, blob, decoding)
            if problem:
                found.append((record.key, f"field {name!r}: {problem}"))
    return found


def _field_problem(name: str, blob: bytes, decoding: dict[str, Any]) -> str:
    """Why a field does not hold what its name says, "" if it does. A field of an unknown kind holds what it holds."""
    from fastdata.codec.decode import decode
    from fastdata.errors import FastdataError
    from fastdata.record import parse_label

    kind = name.rpartition(".")[2]  # `mask.png` is a PNG
    try:
        if _is_picture(kind):
            decode(blob, **decoding)
        elif kind == "cls":
            parse_label("", blob)
        elif kind == "json":
            json.loads(blob)
    except FastdataError as error:
        return str(error)
    except ValueError as error:
        return f"not JSON: {error}"
    return ""


def _is_picture(kind: str) -> bool:
    """Whether a field of this name should hold a picture, also one of a kind that is not read here."""
    from fastdata.codec.sniff import IMAGE_SUFFIXES
    from fastdata.record import IMAGE_FIELDS

    return kind in IMAGE_FIELDS or f".{kind}" in IMAGE_SUFFIXES


class _Listing:
    """The problems found; each is written when it comes, on a terminal only the first of them."""

    # More than a screen is no use to a person; in a pipe and in JSON the list is complete.
    _most = 50

    def __init__(self, silent: bool) -> None:
        from fastdata.cli.terminal import is_terminal

        self._silent, self._person = silent, is_terminal(sys.stdout)
        self.found: list[dict[str, str]] = []
        self.names: set[str] = set()
        self._seen: set[tuple[str, str]] = set()

    def add(self, name: str, problem: str) -> None:
        from fastdata.cli.terminal import printable, say

        if (name, problem) in self._seen:  # what cannot be read is found by both passes
            return
        self._seen.add((name, problem))
        self.found.append({"name": name, "problem": problem})
        self.names.add(name)
        if not self._silent and not (self._person and len(self.found) > self._most):
            say(f"{printable(name)}: {printable(problem)}")

    def end(self, count: int, seconds: float) -> None:
        from fastdata.cli.terminal import say

        hidden = len(self.found) - self._most if self._person else 0
        if hidden > 0:
            say(f"... and {hidden:,} more; --json lists them all")
        if self.found:
            say(f"{len(self.names):,} damaged of {count:,} records, {len(self.found):,} problems ({seconds:.1f} s)")
        else:
            say(f"{count:,} records, all whole ({seconds:.1f} s)")
