"""Limits of the process: what they refuse is told with their name and number, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastdata
from fastdata.codec.encode import encode

pytestmark = pytest.mark.slow

resource = pytest.importorskip("resource")

SCRIPT = """
import os, resource, sys
import fastdata
from fastdata.cache import CachedReader

def limited(name, most, make):
    kind = getattr(resource, name)
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        make()
        print("fine")
    except fastdata.FastdataError as error:
        print(type(error).__name__, name in str(error), f"{most:,}" in str(error))
    finally:
        resource.setrlimit(kind, before)

def first(**options):
    with fastdata.DataLoader(path, 4, **options) as loader:
        next(iter(loader))

if __name__ == "__main__":
    path, method = sys.argv[1:]
    first(num_workers=1, multiprocessing_context=method)
    first(num_workers=1, worker_mode="thread")
    CachedReader(fastdata.open(path)).close()
    reader = fastdata.open(path)
    len(reader.keys), reader[0]
    there = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    mapped = 1 << 40
    if os.path.exists("/proc/self/statm"):
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limited("RLIMIT_NOFILE", 64, lambda: first(num_workers=20, multiprocessing_context=method))
    limited("RLIMIT_FSIZE", 1 << 12, lambda: first(num_workers=1, multiprocessing_context=method))
    limited("RLIMIT_FSIZE", 1 << 10, lambda: fastdata.ImageDataset(path, cache="ram"))
    limited("RLIMIT_AS", mapped + (20 << 20), lambda: CachedReader(reader))
    if os.path.isdir("/proc/self/fd"):
        print(len(set(os.listdir("/proc/self/fd")) - there), "left open")
    first(num_workers=2, multiprocessing_context=method)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the figures are Linux's")
def test_what_a_limit_refuses_names_it(tmp_path: Path, start_method: str) -> None:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        for i in range(8):
            fields = {"png": encode(np.full((16, 16, 3), i, np.uint8), "png"), "bin": bytes(4 << 20)}
            writer.write(fastdata.Record(f"r/{i}", fields))
    script = tmp_path / "limited.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "d.lmdb", start_method],
        env=os.environ | {"PYTHONPATH": os.getcwd()}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "OptionError True True", "OptionError True True", "CacheError True True", "CacheError True True", "0 left open",
    ]  # fmt: skip
