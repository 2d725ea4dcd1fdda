"""C9: what a worker of the loader costs, also when the training script imports torch at its top."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import fastdata
from fastdata.codec.encode import encode
from fastdata.loader.draws import Drawn
from fastdata.loader.settings import checked
from tests.test_samplers import defaults

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux's smaps_rollup"),
]

# The contract's figure. Measured over a million records: 14 to 28 MB, by start method (`scripts/bench workers`).
MOST = 60_000_000
WORKERS = 2
SCRIPT = """
import sys
import tracemalloc
import torch
import fastdata, multiprocessing

def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))

if __name__ == "__main__":
    transform = [fastdata.RandomResizedCrop(16), fastdata.RandomHorizontalFlip()]
    loader = fastdata.DataLoader(
        sys.argv[1], 50, shuffle=True, num_workers=2, transform=transform, multiprocessing_context=sys.argv[2]
    )
    def read():
        for number, _ in enumerate(loader):
            if number == 100:  # in shuffled order, 5,000 samples touch every part of the index
                break

    read()
    loader.close()
    before = pss("self")
    for _ in range(2):
        read()
    # What is shared counts once in the sum, whoever shares it.
    print(sum(map(pss, ["self", *[child.pid for child in multiprocessing.active_children()]])) - before)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """30,000 records: as Python objects in each worker their keys, paths and places would be 10 MB."""
    blob = encode(np.full((18, 20, 3), 90, np.uint8), "jpg")
    place = tmp_path_factory.mktemp("many") / "d.h5"
    with fastdata.create(place) as writer:
        for i in range(30_000):
            writer.write(fastdata.Record(f"class/{i:08d}", {"jpg": blob}, f"class/{i:08d}.jpg"))
    return str(place)


def test_a_worker_stays_small(path: str, start_method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, path, start_method], env=os.environ | {"PYTHONPATH": os.getcwd()}, text=True,
        capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    assert int(done.stdout) / WORKERS < MOST


def test_counting_takes_four_bytes_a_record_however_long_a_sampler_is() -> None:
    count, size = 1_000_000, 1000
    settings = checked(count, defaults() | {"batch_size": size, "sampler": (7 * i % count for i in itertools.count())})
    tracemalloc.start()
    try:
        drawn = Drawn(settings, count, 0)
        drawn.batch(400)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * count + 2_000_000
