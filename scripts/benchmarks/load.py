"""Loading for training: fastdata.DataLoader against its peers and against the floor, in one run.

Every side is a process of its own, which stays for the whole run; one at a time makes an epoch over the same pictures,
and its consumer only counts. The order changes with every repeat; ratios are taken repeat by repeat.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import load_chart
import load_process
import pictures
from load_data import DataSets
from load_sides import OWN, RATIOS, SIZES, TASKS, Side, chosen

from fastdata.cli.measure import Spread

# Below this an epoch is over before loaders have settled, and what they prepare ahead weighs too much.
_ENOUGH = 10_000


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:
    parser.add_argument("--task", choices=TASKS, default="train", help=(
        "train: random crop 224 and flip; eval: shorter side 256, centre crop 224; raw: train, from raw pixels too"
    ))  # fmt: skip
    parser.add_argument("--size", choices=SIZES, default="256", help="the pictures' shorter side (default 256)")
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
        options.work or scratch, pictures.folder(options.photos, options.drawn, scratch), options.size,
        options.samples, options.workers,
    )  # fmt: skip
    rates: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        sides, missing = _started(options, data, stack)
        for repeat in range(options.repeats + 1):
            for name in _order(list(sides), repeat):
                try:
                    rate = sides[name].epoch(repeat, data.count)
                except load_process.SideError as error:
                    missing[name] = str(error)
                    del sides[name]
                    continue
                if repeat:  # the first epoch compiles, starts workers and fills the page cache
                    rates.setdefault(name, []).append(rate)
        facts = {name: side.facts for name, side in sides.items()}
    rates = {side.name: rates[side.name] for side in chosen(options.task, options.size, options.only)
             if side.name in facts}  # fmt: skip
    if options.plot:
        title = f"{options.task}, {options.size}, {options.workers} workers: images/s"
        load_chart.draw(options.plot, title, {name: Spread.of(each) for name, each in rates.items()})
    return _result(options, data, rates, facts, missing)


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


def _result(
    options: argparse.Namespace, data: DataSets, rates: dict[str, list[float]], facts: dict[str, Any],
    missing: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    ratios = {
        f"{one} / {other}": Spread.of([a / b for a, b in zip(rates[one], rates[other], strict=True)])
        for one, other in RATIOS if one in rates and other in rates
    }  # fmt: skip
    told = {
        "task": options.task, "size": options.size, "samples": data.count, "workers": options.workers,
        "batch_size": options.batch_size, "repeats": options.repeats,
        "photos": "given" if options.photos else "drawn", "laid": f"{data.times} times",
    }  # fmt: skip
    if data.count < _ENOUGH:
        told["remark"] = f"epochs of fewer than {_ENOUGH:,} samples prove nothing but that it runs"
    spreads = {name: Spread.of(each) for name, each in rates.items()}
    return {
        "figure": "loading",
        "settings": told,
        "cache": "warm: every side has made one epoch before the first that counts",
        "rates": rates,
        "sides": facts,
        "ratios": {name: spread.facts() for name, spread in ratios.items()},
        "not_measured": missing,
        "columns": ["images/s", "median", "lowest", "highest"],
        "rows": [[name, *_numbers(spread, ",.0f")] for name, spread in spreads.items()],
        "more": [
            {"columns": ["ratio", "median", "lowest", "highest"],
             "rows": [[name, *_numbers(spread, ".2f")] for name, spread in ratios.items()]},
            {"columns": ["side", "in its environment"],
             "rows": [[name, ", ".join(f"{k} {v}" for k, v in fact.items())] for name, fact in facts.items()]},
            {"columns": ["not measured", "why"],
             "rows": [[name, why.strip().splitlines()[-1]] for name, why in missing.items()]},
        ],
    }  # fmt: skip


def _numbers(spread: Spread, form: str) -> list[str]:
    return [format(value, form) for value in (spread.median, spread.low, spread.high)]
