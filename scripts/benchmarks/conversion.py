"""Converting a folder of photos, against a bare loop of the same work on the same number of processes.

Each side is a fresh Python process, timed from start to exit; the sides alternate, and ratios are taken pair by pair.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import images

from fastdata.cli.measure import Spread

_ENDINGS = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "out"}


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:
    parser.add_argument("--times", type=int, default=20, help="how often the photos are laid (default 20)")
    parser.add_argument("--resize", type=int, default=256, help="the shorter side (default 256)")
    parser.add_argument("--workers", type=int, default=cores, help=f"processes on each side (default {cores})")
    parser.add_argument("--format", choices=list(_ENDINGS), default="lmdb")


def take(options: argparse.Namespace, scratch: str) -> dict[str, Any]:
    source = os.path.join(scratch, "source")
    count = images.lay(images.folder(options.photos, options.drawn, scratch), options.times, source)
    size = images.read_all(source)
    ours, bare = [], []
    for repeat in range(options.repeats):
        pair = [(ours, _ours), (bare, _bare)]
        for seconds, command in pair if repeat % 2 == 0 else reversed(pair):
            seconds.append(_timed(command(options, source, scratch)))
            _clear(scratch)
    ratios = Spread.of([b / o for o, b in zip(ours, bare, strict=True)])
    rows = [_row("fastdata convert", Spread.of(ours), count), _row("bare loop", Spread.of(bare), count)]
    rows.append(["rate, bare loop = 1", *(f"{value:.3f}" for value in (ratios.median, ratios.low, ratios.high)), ""])
    return {
        "figure": "conversion",
        "settings": {
            "files": count, "bytes": size, "photos": "given" if options.photos else "drawn", "format": options.format,
            "resize": options.resize, "workers": options.workers, "repeats": options.repeats,
        },
        "cache": "warm: every source file is read once before",
        "seconds": {"fastdata": ours, "bare": bare},
        "ratio": ratios.facts(),
        "columns": ["", "median s", "lowest", "highest", "images/s"],
        "rows": rows,
    }  # fmt: skip


def _ours(options: argparse.Namespace, source: str, scratch: str) -> list[str]:
    target = os.path.join(scratch, _ENDINGS[options.format])
    chosen = ["--format", options.format, "--resize", str(options.resize), "--workers", str(options.workers)]
    return [sys.executable, "-m", "fastdata", "convert", source, target, *chosen]


def _bare(options: argparse.Namespace, source: str, scratch: str) -> list[str]:
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bare_loop.py")
    return [
        sys.executable,
        script,
        source,
        os.path.join(scratch, "out.bare"),
        str(options.resize),
        str(options.workers),
    ]


def _timed(command: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds


def _clear(scratch: str) -> None:
    for name in os.listdir(scratch):
        path = os.path.join(scratch, name)
        if name.startswith("out"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _row(name: str, seconds: Spread, count: int) -> list[str]:
    times = [f"{value:.3f}" for value in (seconds.median, seconds.low, seconds.high)]
    return [name, *times, f"{count / seconds.median:,.0f}"]
