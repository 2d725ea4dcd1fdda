"""`scripts/bench convert|start|read|open|load|workers`: one figure each, with machine, versions and cache state."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any

import conversion
import load
import opening
import reading
import starting
import workers

from fastdata.cli import terminal
from fastdata.cli.measure import engines, machine, versions
from fastdata.cpus import available_cpus

_FIGURES = {
    "convert": conversion,
    "start": starting,
    "read": reading,
    "open": opening,
    "load": load,
    "workers": workers,
}


def _repeats(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    commands = parser.add_subparsers(dest="figure", required=True)
    for name, module in _FIGURES.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        command.add_argument(
            "--json", nargs="?", const="-", metavar="FILE", help="JSON into FILE, or printed instead of the table"
        )
        command.add_argument("--repeats", type=_repeats, default=5, help="how often each figure is taken (default 5)")
        command.add_argument("--work", metavar="DIR", help="where files are made (default: a temporary folder)")
        if name in ("convert", "read", "load"):
            command.add_argument("--photos", metavar="DIR", help="a folder of photos (default: 200 drawn ones)")
            command.add_argument("--drawn", type=int, default=200, help="how many to draw without --photos")
        module.arguments(command, available_cpus())
    return parser


def main() -> int:
    options = _parser().parse_args()
    if options.work:
        os.makedirs(options.work, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fastdata-bench-", dir=options.work) as scratch:
        result: dict[str, Any] = _FIGURES[options.figure].take(options, scratch)
    result |= {"machine": machine(), "versions": versions(), "engines": engines()}
    tables = result.pop("more", [])
    text = json.dumps(result, indent=1, allow_nan=False)
    if options.json == "-":
        print(text)
        return 0
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    _show(result, tables)
    return 0


def _show(result: dict[str, Any], more: list[dict[str, Any]]) -> None:
    plain = {name: value for name, value in result.items() if not isinstance(value, (list, dict))}
    facts = {
        name: ", ".join(f"{k} {v}" for k, v in result[name].items())
        for name in ("settings", "machine", "versions", "engines")
    }
    print(terminal.pairs([*plain.items(), *facts.items()]))
    for table in (result, *more):
        if table["rows"]:
            print()
            print(terminal.table("", table["columns"], table["rows"]))


if __name__ == "__main__":
    sys.exit(main())
