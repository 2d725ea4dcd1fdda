"""One record in random order, `reader[i]`, in every format of the same records, within one warm process."""

from __future__ import annotations

import argparse
import os
import random
import time
from typing import Any

import images

import fastdata
from fastdata.cli.measure import Spread

_NAMES = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "shards"}


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:  # noqa: ARG001 - one process, one thread
    parser.add_argument("--times", type=int, default=5, help="how often the photos are laid (default 5)")
    parser.add_argument("--reads", type=int, default=20_000, help="reads a repeat (default 20,000)")


def take(options: argparse.Namespace, scratch: str) -> dict[str, Any]:
    source = os.path.join(scratch, "source")
    count = images.lay(images.folder(options.photos, options.drawn, scratch), options.times, source)
    size = images.read_all(source)
    order = random.Random(1).choices(range(count), k=options.reads)
    seconds: dict[str, list[float]] = {name: [] for name in (*_NAMES, "folder")}
    with fastdata.open(source) as folder:
        for name, file in _NAMES.items():
            with fastdata.create(os.path.join(scratch, file), format=name, classes=folder.classes) as writer:
                for record in (folder[row] for row in range(count)):
                    writer.write(record)
        readers = {name: fastdata.open(os.path.join(scratch, file)) for name, file in _NAMES.items()} | {
            "folder": folder
        }
        for repeat in range(options.repeats + 1):
            for name, reader in readers.items():
                value = _timed(reader, order)
                if repeat:  # the first round is the warm-up
                    seconds[name].append(value)
        for reader in readers.values():
            reader.close()
    return _result(options, {name: Spread.of(values) for name, values in seconds.items()}, count, size)


def _timed(reader: fastdata.Reader, order: list[int]) -> float:
    begin = time.perf_counter()
    for row in order:
        reader[row]
    return (time.perf_counter() - begin) / len(order)


def _result(options: argparse.Namespace, spreads: dict[str, Spread], count: int, size: int) -> dict[str, Any]:
    fastest = min(spreads[name].median for name in _NAMES)
    return {
        "figure": "reading",
        "settings": {
            "records": count, "bytes": size, "photos": "given" if options.photos else "drawn",
            "reads": options.reads, "repeats": options.repeats,
        },
        "cache": "warm: all records are read once before, by every format",
        "seconds_per_record": {name: spread.facts() for name, spread in spreads.items()},
        "columns": ["reader[i]", "median us", "lowest", "highest", "fastest = 1"],
        "rows": [
            [name, *(f"{v * 1e6:.2f}" for v in (s.median, s.low, s.high)), f"{s.median / fastest:.2f}"]
            for name, s in spreads.items()
        ],
    }  # fmt: skip
