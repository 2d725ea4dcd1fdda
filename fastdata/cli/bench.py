"""`fastdata bench`: measure how fast the records of a data set are read and its images decoded.

Every figure is a median over repeats with its lowest and highest, printed with the machine, the versions and the state
of the page cache. Reading is `reader[i]` (bytes of all fields) in this process; decoding is from encoded bytes to RGB.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli.arguments import DataSet, ImageField, LabelField, MaxPixels, positive, reading

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fastdata.cli.measure import Spread
    from fastdata.formats.base import Reader

    Opened = Callable[[], AbstractContextManager[Reader]]

# Decoding a photo takes about 300 times as long as reading it, so fewer records give as steady a figure.
_DECODED = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how."""

    path: str
    cache: str | None = None
    cold: bool = False
    workers: int = 1
    repeats: int = 5
    samples: int = 5000
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Figures:
    """Seconds per record of each measurement."""

    spreads: dict[str, Spread] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    fill_seconds: float | None = None


def command(
    path: DataSet,
    cache: Annotated[
        str | None, typer.Option(metavar="ram", help="Copy the data to shared memory first, and read from there.")
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Drop the files from the page cache before each repeat.")
    ] = False,
    workers: Annotated[int, typer.Option(parser=positive, metavar="N", help="Decoder threads.")] = 1,
    repeats: Annotated[int, typer.Option(parser=positive, metavar="N", help="Repeats of each figure.")] = 5,
    samples: Annotated[int, typer.Option(parser=positive, metavar="N", help="Records per repeat, at most.")] = 5000,
    max_pixels: MaxPixels = None,
    image_field: ImageField = None,
    label_field: LabelField = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as strict JSON.")] = False,
) -> None:
    """Measure how fast the records of a data set are read and decoded."""
    from fastdata.checks import choice
    from fastdata.cli.terminal import write_json
    from fastdata.errors import OptionError

    if cache is not None:
        choice("--cache", cache, ("ram",))
    if cache and cold:
        raise OptionError("--cold and --cache ram exclude each other: data in memory are never cold")
    options = reading(max_pixels=max_pixels, image_field=image_field, label_field=label_field)
    facts = measure(Plan(path, cache, cold, workers, repeats, samples, options))
    if as_json:
        write_json(facts)
    else:
        _show(facts)


def measure(plan: Plan) -> dict[str, Any]:
    """Take all figures of a plan; return what `--json` prints."""
    from fastdata.cli.measure import engines, machine, versions

    figures = _Figures()
    with _opened(plan, figures) as reader:
        facts = _about(reader, plan)
        if not plan.cold:
            _take_all(plan, figures, facts["count"], lambda: contextlib.nullcontext(reader))
    if plan.cold:  # each repeat opens the data set anew, because mapped pages would stay in memory
        _take_all(plan, figures, facts["count"], lambda: _opened(plan, figures))
    return {
        **facts,
        "cache_fill_seconds": figures.fill_seconds,
        "figures": [_figure(what, figures.counts[what], spread) for what, spread in figures.spreads.items()],
        "machine": machine(),
        "versions": versions(),
        "engines": engines(),
    }


def _figure(what: str, count: int, spread: Spread) -> dict[str, Any]:
    return {
        "what": what,
        "records": count,
        "seconds_per_record": spread.facts(),
        "records_per_second": 1 / spread.median,
    }


def _about(reader: Reader, plan: Plan) -> dict[str, Any]:
    states = {
        "ram": "the encoded bytes lie in shared memory",
        "cold": "cold: the files are dropped from the page cache before each repeat",
        "warm": "warm: everything measured is read once before",
    }
    return {
        "path": reader.path,
        "format": reader.manifest.format,
        "count": len(reader),
        "cache": plan.cache,
        "cache_state": states["ram" if plan.cache else "cold" if plan.cold else "warm"],
        "workers": plan.workers,
        "repeats": plan.repeats,
    }


@contextlib.contextmanager
def _opened(plan: Plan, figures: _Figures) -> Iterator[Reader]:
    """Open the data set, in the RAM cache if the plan asks for it."""
    from fastdata.formats import detect

    with detect.open(plan.path, **plan.options) as plain:
        if plan.cache is None:
            yield plain
            return
        from fastdata.cache import CachedReader

        begin = time.perf_counter()
        with CachedReader(plain, progress=True) as cached:
            figures.fill_seconds = time.perf_counter() - begin
            yield cached


def _take_all(plan: Plan, figures: _Figures, count: int, opened: Opened) -> None:
    """Take every figure of a data set of `count` records, which `opened` opens."""
    from fastdata.cli.measure import one_opencv_thread

    if not count:
        return
    order = random.Random(0).sample(range(count), min(plan.samples, count))
    with one_opencv_thread(), ThreadPoolExecutor(plan.workers) as pool:
        for what, rows, run in (
            ("read, random order", order, _read),
            ("read, in sequence", range(len(order)), _read),
            ("decode", order[:_DECODED], partial(_decode, pool, plan.workers)),
        ):
            figures.spreads[what], figures.counts[what] = _spread(plan, opened, rows, run), len(rows)


def _spread(plan: Plan, opened: Opened, rows: Sequence[int], run: Callable[[Reader, Sequence[int]], None]) -> Spread:
    """Time `run` on these rows, once per repeat."""
    from fastdata.cli.measure import Spread, drop_cached_pages
    from fastdata.errors import OptionError

    values = []
    if plan.cold:
        for _ in range(plan.repeats):
            if not drop_cached_pages(_files(plan.path)):
                raise OptionError("--cold: this system cannot drop files from its page cache; measure without it")
            with opened() as reader:
                values.append(_timed(reader, rows, run))
    else:
        with opened() as reader:
            run(reader, rows)  # the warm-up
            values = [_timed(reader, rows, run) for _ in range(plan.repeats)]
    return Spread.of(values)


def _timed(reader: Reader, rows: Sequence[int], run: Callable[[Reader, Sequence[int]], None]) -> float:
    begin = time.perf_counter()
    run(reader, rows)
    return (time.perf_counter() - begin) / len(rows)


def _read(reader: Reader, rows: Sequence[int]) -> None:
    for row in rows:
        reader[row]


def _decode(pool: ThreadPoolExecutor, workers: int, reader: Reader, rows: Sequence[int]) -> None:
    if workers == 1:
        _decode_rows(reader, rows)
        return
    parts = [rows[start::workers] for start in range(workers)]
    for future in [pool.submit(_decode_rows, reader, part) for part in parts]:
        future.result()


def _decode_rows(reader: Reader, rows: Sequence[int]) -> None:
    from fastdata.codec.decode import Rules, decode
    from fastdata.errors import DecodeError
    from fastdata.formats.base import allowed_pixels

    rules = asdict(Rules.of(reader.manifest.options, allowed_pixels(reader)))
    for row in rows:
        _, blob = reader.image(row)
        try:
            decode(blob, **rules)
        except DecodeError as error:
            raise DecodeError(f"{reader.path}: record {reader.keys[row]!r}: {error}; see `fastdata verify`") from error


def _files(path: str) -> list[str]:
    """All files of a data set."""
    if not os.path.isdir(path):
        return [path]
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path, followlinks=True) for name in names)
    return [file for file in files if os.path.isfile(file)]


def _show(facts: dict[str, Any]) -> None:
    from fastdata.cli.measure import engine_line
    from fastdata.cli.terminal import pairs, size_text, table, write_line

    machine, versions = facts["machine"], facts["versions"]
    rows: list[tuple[str, object]] = [
        ("path", f"{facts['path']} ({facts['format']}, {facts['count']:,} records)"),
        ("cache", facts["cache_state"]),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {size_text(machine['memory_bytes'])}"),
        ("system", machine["system"]),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items())),
        ("engines", engine_line(facts["engines"])),
    ]
    if facts["cache_fill_seconds"] is not None:
        rows.append(("cache filled in", f"{facts['cache_fill_seconds']:.2f} s"))
    write_line(pairs(rows))
    write_line()
    title = f"median over {facts['repeats']} repeats; decoder threads: {facts['workers']}"
    columns = ["", "us a record", "lowest", "highest", "records/s"]
    write_line(table(title, columns, [_row(figure) for figure in facts["figures"]]))


def _row(figure: dict[str, Any]) -> list[str]:
    spread = figure["seconds_per_record"]
    times = [f"{spread[name] * 1e6:,.1f}" for name in ("median", "low", "high")]
    return [figure["what"], *times, f"{figure['records_per_second']:,.0f}"]
