"""ImageStream: batches that torch's DataLoader makes by itself lose samples, with one warning."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from fastdata import ImageStream
from tests.conftest import START_METHODS
from tests.test_stream import numbered

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return numbered(tmp_path / "set.h5")


def _noted(file: str, _: int) -> None:
    """Warnings go to a file, whatever a worker has of this process: a fork server keeps the stderr it began with."""

    def write(message: Warning | str, *_: Any, **__: Any) -> None:
        with open(file, "a", encoding="utf-8") as out:
            out.write(f"{message}\n")

    warnings.simplefilter("always")
    warnings.showwarning = write


def run(stream: ImageStream, file: Path, method: str = "fork", **options: Any) -> int:
    file.touch()
    options = {"num_workers": 3, "multiprocessing_context": method} | options
    loader: DataLoader[Any] = DataLoader(stream, worker_init_fn=partial(_noted, str(file)), **options)
    for _ in range(2):
        batches = list(loader)
    return len(batches)


@pytest.mark.parametrize("method", START_METHODS)
def test_losing_samples_warns_once(path: Path, method: str, tmp_path: Path) -> None:
    file = tmp_path / "warnings"
    assert run(ImageStream(path), file, method, batch_size=5, drop_last=True) == 3
    warned = file.read_text()
    assert warned.count("samples are lost") == 1
    assert "set.h5" in warned
    assert "DataLoader(stream, batch_size=None)" in warned


def test_what_loses_nothing_gives_no_warning(path: Path, tmp_path: Path) -> None:
    file, stream = tmp_path / "warnings", ImageStream(path, batch_size=4, drop_last=True)
    assert run(stream, file, batch_size=None) == len(DataLoader(stream, batch_size=None)) == 5
    run(ImageStream(path), file, batch_size=4)
    run(ImageStream(path), file, batch_size=None)
    run(ImageStream(path), file, batch_size=4, drop_last=True, num_workers=1)
    assert "samples are lost" not in file.read_text()
