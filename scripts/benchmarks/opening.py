"""Opening a data set of a million tiny records in a fresh process: seconds, and memory that is added.

The data sets are made once with `fastdata.create`; with `--work DIR` they stay there for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fastdata
from fastdata.cli.measure import Spread

_NAMES = {"lmdb": "lmdb", "hdf5": "h5", "tar": "tar"}

# Runs in the fresh process. What the first open imports counts, as it does for a user.
_CHILD = """
import json, sys, time
import fastdata
def memory():
    with open("/proc/self/smaps_rollup") as file:
        rows = [line.split() for line in file if line.endswith("kB\\n")]
    sizes = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
    return {"rss": sizes["Rss"], "pss": sizes["Pss"], "private": sizes["Private_Clean"] + sizes["Private_Dirty"]}
before, begin = memory(), time.perf_counter()
reader = fastdata.open(sys.argv[1])
opened, after = time.perf_counter(), memory()
first, last = reader[0], reader[len(reader) - 1]
assert reader.find(last.key) == len(reader) - 1
read, end = time.perf_counter(), memory()
reader.close()
again = time.perf_counter()
fastdata.open(sys.argv[1]).close()
print(json.dumps({
    "open": opened - begin, "first_reads": read - opened, "open_again": time.perf_counter() - again,
    "memory": {name: after[name] - before[name] for name in before},
    "memory_after_reads": {name: end[name] - before[name] for name in before},
}))
"""


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:  # noqa: ARG001 - one process
    parser.add_argument("--count", type=int, default=1_000_000, help="records (default 1,000,000)")


def take(options: argparse.Namespace, scratch: str) -> dict[str, Any]:
    place = options.work or scratch
    paths = {name: os.path.join(place, f"tiny-{options.count}.{ending}") for name, ending in _NAMES.items()}
    for path in paths.values():
        if not os.path.exists(path):
            with fastdata.create(path, classes=[f"class{c:03d}" for c in range(1000)]) as writer:
                for record in _records(options.count):
                    writer.write(record)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in paths}
    for repeat in range(options.repeats + 1):
        for name, path in paths.items():
            output = subprocess.run([sys.executable, "-c", _CHILD, path], stdout=subprocess.PIPE, check=True).stdout
            if repeat:  # the first round fills the page cache
                runs[name].append(json.loads(output))
    return {
        "figure": "opening",
        "settings": {"records": options.count, "repeats": options.repeats},
        "cache": "warm: each data set is opened once before (imports count as open's own)",
        "runs": runs,
        "columns": [
            "fastdata.open",
            "median s",
            "lowest",
            "highest",
            "again s",
            "first reads s",
            "PSS MB",
            "private MB",
        ],
        "rows": [_row(name, run) for name, run in runs.items()],
    }


def _records(count: int) -> Iterator[fastdata.Record]:
    for number in range(count):
        label = number * 1000 // count
        yield fastdata.Record(
            f"class{label:03d}/{number:08d}",
            {"jpg": b"tiny %011d" % number, "cls": b"%d" % label},
            f"class{label:03d}/{number:08d}.jpg",
        )


def _row(name: str, runs: list[dict[str, Any]]) -> list[str]:
    seconds = Spread.of([run["open"] for run in runs])
    again, reads = (Spread.of([run[what] for run in runs]).median for what in ("open_again", "first_reads"))
    memory = [f"{max(run['memory_after_reads'][kind] for run in runs) / 1e6:.1f}" for kind in ("pss", "private")]
    return [
        name,
        *(f"{v:.3f}" for v in (seconds.median, seconds.low, seconds.high)),
        f"{again:.4f}",
        f"{reads:.4f}",
        *memory,
    ]
