"""Loading for training: fastdata.DataLoader against its peers and against the floor, in one run.

Every side is a process of its own, which stays for the whole run; one at a time makes an epoch over the same images,
and its consumer only counts. The order changes with every repeat; ratios are taken repeat by repeat.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import images
import load_chart
import load_process
import load_report
from load_data import DataSets
from load_sides import OWN, PEERS, SIZES, TASKS, Side, chosen

from fastdata.cli.measure import Spread

# Below this an epoch is over before loaders have settled, and what they prepare ahead weighs too much.
_ENOUGH = 10_000


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:
    parser.add_argument("--task", choices=TASKS, default="train", help=(
        "train: random crop 224 and flip; eval: shorter side 256, centre crop 224; raw: train, from raw pixels too"
    ))  # fmt: skip
    parser.add_argument("--size", choices=SIZES, default="256", help="the images' shorter side (default 256)")
    parser.add_argument("--samples", type=int, default=_ENOUGH, help=f"of an epoch, at least (default {_ENOUGH:,})")
    parser.add_argument("--workers", type=int, default=cores, help=f"processes or threads (default {cores})")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--only", metavar="NAMES", help="measure these sides only, with commas between")
    parser.add_argument("--peer", metavar="NAME=PYTHON", action="append", default=[], help=(
        "the Python in whose environment a peer can be imported: torchvision, webdataset, ffcv, dali, spdl"
    ))  # fmt: skip
    parser.add_argument("--plot", metavar="FILE.png", help="draw a bar chart")


def take(options: argparse.Namespace, scratch: str) -> dict[str, Any]:
    data = DataSets(
        options.work or scratch, images.folder(options.photos, options.drawn, scratch), options.size,
        options.samples, options.workers,
    )  # fmt: skip
    epochs: dict[str, list[load_process.Epoch]] = {}
    with contextlib.ExitStack() as stack:
        sides, missing = _started(options, data, stack)
        for repeat in range(options.repeats + 1):
            for name in _order(list(sides), repeat):
                try:
                    epoch = sides[name].epoch(repeat, data.count)
                except load_process.SideError as error:
                    missing[name] = str(error)
                    del sides[name]
                    continue
                if repeat:  # the first epoch compiles, starts workers and fills the page cache
                    epochs.setdefault(name, []).append(epoch)
        facts = {name: side.facts for name, side in sides.items()}
    if options.plot:
        title = f"{options.task}, {options.size}, {options.workers} workers: images/s"
        spreads = {name: Spread.of([epoch.rate for epoch in epochs[name]]) for name in facts}
        load_chart.draw(options.plot, title, spreads)
    return load_report.told(_settings(options, data), {name: epochs[name] for name in facts}, facts, missing)


def _settings(options: argparse.Namespace, data: DataSets) -> dict[str, Any]:
    settings = {name: getattr(options, name) for name in ("task", "size", "workers", "batch_size", "repeats")}
    settings |= {"samples": data.count, "photos": "given" if options.photos else "drawn", "laid": f"{data.times} times"}
    if data.count < _ENOUGH:
        settings["remark"] = f"epochs of fewer than {_ENOUGH:,} samples prove nothing but that it runs"
    return settings


def _started(
    options: argparse.Namespace, data: DataSets, stack: contextlib.ExitStack
) -> tuple[dict[str, load_process.Process], dict[str, str]]:
    """A process for every side that can be measured; for the others, why not."""
    pythons = _pythons(options.peer)
    sides, missing = {}, {}
    for side in chosen(options.task, options.size, options.only):
        if side.peer != OWN and side.peer not in pythons:
            missing[side.name] = f"needs --peer {side.peer}=PYTHON"
            continue
        process = stack.enter_context(load_process.Process(side, pythons.get(side.peer)))
        try:
            process.prepare(_job(side, options, data))
        except load_process.SideError as error:
            missing[side.name] = str(error)
            continue
        sides[side.name] = process
    return sides, missing


def _pythons(given: list[str]) -> dict[str, str]:
    pythons = {}
    for one in given:
        name, equals, python = one.partition("=")
        if not equals or not os.access(python, os.X_OK):
            raise SystemExit(f"--peer {one}: not NAME=PYTHON with a program that can be run, like ffcv=venv/bin/python")
        if name not in PEERS:
            raise SystemExit(f"--peer {one}: {name!r} is none of {', '.join(PEERS)}")
        pythons[name] = os.path.abspath(python)
    return pythons


def _job(side: Side, options: argparse.Namespace, data: DataSets) -> dict[str, Any]:
    job = {
        "task": options.task, "size": options.size, "batch_size": options.batch_size, "times": data.times,
        "workers": side.workers or options.workers, "data": data.path(side.data), "pixels": data.path("pixels"),
    }  # fmt: skip
    if side.data == "shards":
        job["shards"] = data.shards()
    return job | side.options


def _order(names: list[str], repeat: int) -> Iterator[str]:
    """Forwards and backwards in turn, each time from another one on."""
    start = repeat * 5 % max(len(names), 1)
    turned = names[start:] + names[:start]
    return iter(turned if repeat % 2 else turned[::-1])
