"""`scripts/bench`: every figure can be taken, and is printed with machine, versions, settings and cache state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_SCRIPT = Path(__file__).parents[1] / "scripts" / "benchmarks"


def bench(*arguments: str) -> Any:
    command = [sys.executable, str(_SCRIPT), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["machine"]["cores"] >= 1
    assert facts["versions"]["python"]
    assert facts["settings"]["repeats"] == 1
    assert facts["cache"].startswith("warm")
    assert all(len(row) == len(facts["columns"]) for row in facts["rows"])
    return facts


def test_starting() -> None:
    facts = bench("start", "--repeats", "1")
    assert facts["loaded"] == {"import fastdata": [], "fastdata --help": []}


def test_reading(photo_folder: Path) -> None:
    facts = bench("read", "--photos", str(photo_folder), "--times", "1", "--reads", "20", "--repeats", "1")
    assert set(facts["seconds_per_record"]) == {"lmdb", "hdf5", "tar", "folder"}
    assert facts["settings"]["records"] == 12


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="memory is read from Linux's /proc")
def test_opening_keeps_its_data_sets(tmp_path: Path) -> None:
    facts = bench("open", "--count", "300", "--repeats", "1", "--work", str(tmp_path))
    assert {row[0] for row in facts["rows"]} == {"lmdb", "hdf5", "tar"}
    made = sorted(os.listdir(tmp_path))
    assert made == ["tiny-300.h5", "tiny-300.lmdb", "tiny-300.tar"]


@pytest.mark.parametrize("name", ["lmdb", "hdf5", "tar"])
def test_conversion(name: str) -> None:
    settings = ["--drawn", "3", "--times", "2", "--resize", "64", "--workers", "1", "--repeats", "1", "--format", name]
    facts = bench("convert", *settings)
    assert facts["settings"]["files"] == 6
    assert len(facts["seconds"]["fastdata"]) == len(facts["seconds"]["bare"]) == 1
    assert facts["ratio"]["median"] > 0


def test_loading(tmp_path: Path) -> None:
    chart, work = tmp_path / "chart.png", tmp_path / "work"
    names = ("fastdata", "fastdata-tar", "floor")
    small = ["--drawn", "3", "--samples", "6", "--batch-size", "4", "--repeats", "1", "--workers", "2"]
    facts = bench("load", *small, "--only", ",".join(names), "--plot", str(chart), "--work", str(work))
    assert not facts["not_measured"]
    assert [row[0] for row in facts["rows"]] == list(names)
    assert all(len(rates) == 1 and rates[0] > 0 for rates in facts["rates"].values())
    assert set(facts["ratios"]) == {"fastdata / floor", "fastdata-tar / fastdata"}
    assert facts["settings"]["samples"] == 6
    assert "prove nothing" in facts["settings"]["remark"]
    assert chart.read_bytes().startswith(b"\x89PNG")
    kept = {name for folder in work.iterdir() for name in os.listdir(folder)}
    assert {"records.lmdb", "tar"} <= kept


def test_a_missing_peer_is_reported() -> None:
    small = ["--task", "raw", "--drawn", "2", "--samples", "4", "--repeats", "1", "--workers", "1"]
    facts = bench("load", *small, "--only", "ffcv,fastdata-raw")
    assert facts["not_measured"] == {"ffcv": "needs --peer ffcv=PYTHON"}
    assert set(facts["rates"]) == {"fastdata-raw"}
