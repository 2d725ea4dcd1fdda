"""A worker of fastdata.DataLoader over a million records: memory, seconds to the first batch, growth over 20 epochs.

Each start method is taken in a fresh script that imports torch at its top, as training scripts do. What a worker adds
is what all processes together (PSS) take more with several workers than with one, divided by the workers more: pages
that a fork shares with its parent, and those of the index that the parent reads, are there anyway.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

import cv2
import numpy as np

import fastdata
from fastdata.cli.measure import Spread

_METHODS = ("fork", "forkserver", "spawn")
_CHILD = """
import json, multiprocessing, sys, time
import torch
import fastdata

def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))

def main(path, method, workers, epochs):
    transform = [fastdata.RandomResizedCrop(16), fastdata.RandomHorizontalFlip()]
    loader = fastdata.DataLoader(
        path, 64, shuffle=True, num_workers=workers, transform=transform, multiprocessing_context=method
    )
    begin = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first, taken = time.perf_counter() - begin, []
    for epoch in range(epochs):
        for number, _ in enumerate(batches):
            if number == 200:
                break
        pids = [child.pid for child in multiprocessing.active_children()]
        taken.append(sum(map(pss, ["self", *pids])))
        del batches  # an iterator that is still alive would keep its workers, and the next get others
        batches = iter(loader)
    del batches
    begin = time.perf_counter()
    next(iter(loader))
    again = time.perf_counter() - begin
    loader.close()
    print(json.dumps({"first": first, "again": again, "taken": taken}))

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
"""


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:
    parser.add_argument("--count", type=int, default=1_000_000, help="records (default 1,000,000)")
    parser.add_argument("--workers", type=int, default=cores, help=f"workers more than one (default {cores})")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of 200 batches (default 20)")


def take(options: argparse.Namespace, scratch: str) -> dict[str, Any]:
    path = os.path.join(options.work or scratch, f"images-{options.count}.h5")
    if not os.path.exists(path):
        _write(path, options.count)
    script = os.path.join(scratch, "train.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(_CHILD)
    home = os.path.dirname(os.path.dirname(os.path.abspath(fastdata.__file__)))
    runs: dict[str, list[dict[str, Any]]] = {method: [] for method in _METHODS}
    for _ in range(options.repeats):
        for method, taken in runs.items():
            run, alone = (
                _run([script, path, method, str(workers), str(options.epochs)], home)
                for workers in (1 + options.workers, 1)
            )
            run["added"] = [
                (many - one) / options.workers for many, one in zip(run["taken"], alone["taken"], strict=True)
            ]
            taken.append(run)
    return {
        "figure": "workers",
        "settings": {
            "records": options.count, "workers": f"{1 + options.workers} against 1", "epochs": options.epochs,
            "repeats": options.repeats,
        },
        "cache": "warm",
        "runs": runs,
        "columns": ["start method", "first batch s", "lowest", "highest", "again s", "MB a worker", "after all epochs"],
        "rows": [_row(method, taken) for method, taken in runs.items()],
    }  # fmt: skip


def _run(arguments: list[str], home: str) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": home}
    command = [sys.executable, *arguments]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout
    result: dict[str, Any] = json.loads(output)
    return result


def _write(path: str, count: int) -> None:
    blob = cv2.imencode(".jpg", np.full((18, 20, 3), 90, np.uint8))[1].tobytes()
    with fastdata.create(path, classes=[f"class{c:03d}" for c in range(1000)]) as writer:
        for number in range(count):
            label = number * 1000 // count
            key = f"class{label:03d}/{number:08d}"
            writer.write(fastdata.Record(key, {"jpg": blob, "cls": b"%d" % label}, key + ".jpg"))


def _row(method: str, runs: list[dict[str, Any]]) -> list[str]:
    first = Spread.of([run["first"] for run in runs])
    again = Spread.of([run["again"] for run in runs])
    sizes = [max(run["added"][at] for run in runs) / 1e6 for at in (0, -1)]
    seconds = (first.median, first.low, first.high, again.median)
    return [method, *(f"{value:.3f}" for value in seconds), *(f"{size:.1f}" for size in sizes)]
