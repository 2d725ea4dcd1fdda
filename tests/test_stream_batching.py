"""ImageStream: batches that torch's DataLoader makes of it by itself lose samples, which is told once."""

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


def _noted(place: str, _: int) -> None:
    """Warnings go to a file, whatever a worker has of this process: a fork server keeps the stderr it began with."""

    def write(message: Warning | str, *_: Any, **__: Any) -> None:
        with open(place, "a", encoding="utf-8") as file:
            file.write(f"{message}\n")

    warnings.simplefilter("always")
    warnings.showwarning = write


def run(stream: ImageStream, place: Path, method: str = "fork", **options: Any) -> int:
    place.touch()
    options = {"num_workers": 3, "multiprocessing_context": method} | options
    loader: DataLoader[Any] = DataLoader(stream, worker_init_fn=partial(_noted, str(place)), **options)
    for _ in range(2):
        batches = list(loader)
    return len(batches)


@pytest.mark.parametrize("method", START_METHODS)
def test_losing_samples_is_told_once(path: Path, method: str, tmp_path: Path) -> None:
    place = tmp_path / "warnings"
    assert run(ImageStream(path), place, method, batch_size=5, drop_last=True) == 3
    told = place.read_text()
    assert told.count("samples are lost") == 1
    assert "set.h5" in told
    assert "DataLoader(stream, batch_size=None)" in told


def test_what_loses_nothing_is_not_told_of(path: Path, tmp_path: Path) -> None:
    place, stream = tmp_path / "warnings", ImageStream(path, batch_size=4, drop_last=True)
    assert run(stream, place, batch_size=None) == len(DataLoader(stream, batch_size=None)) == 5
    run(ImageStream(path), place, batch_size=4)
    run(ImageStream(path), place, batch_size=None)
    run(ImageStream(path), place, batch_size=4, drop_last=True, num_workers=1)
    assert "samples are lost" not in place.read_text()
