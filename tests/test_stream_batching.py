"""ImageStream: batches that torch's DataLoader makes of it by itself lose samples, which is told once."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from fastdata import ImageStream
from tests.conftest import START_METHODS
from tests.test_stream import numbered


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return numbered(tmp_path / "set.h5")


def _shown(_: int) -> None:
    """Warnings as anybody sees them, whatever a forked worker has of this process."""

    def write(message: Warning | str, *_: Any, **__: Any) -> None:
        os.write(2, f"{message}\n".encode())

    warnings.simplefilter("always")
    warnings.showwarning = write


def run(stream: ImageStream, method: str = "fork", **options: Any) -> int:
    options = {"num_workers": 3, "worker_init_fn": _shown, "multiprocessing_context": method} | options
    loader: DataLoader[Any] = DataLoader(stream, **options)
    for _ in range(2):
        batches = list(loader)
    return len(batches)


@pytest.mark.parametrize("method", START_METHODS)
def test_losing_samples_is_told_once(path: Path, method: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(ImageStream(path), method, batch_size=5, drop_last=True) == 3
    told = capfd.readouterr().err
    assert told.count("samples are lost") == 1
    assert "set.h5" in told
    assert "DataLoader(stream, batch_size=None)" in told


def test_what_loses_nothing_is_not_told_of(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stream = ImageStream(path, batch_size=4, drop_last=True)
    assert run(stream, batch_size=None) == len(DataLoader(stream, batch_size=None)) == 5
    run(ImageStream(path), batch_size=4)
    run(ImageStream(path), batch_size=None)
    run(ImageStream(path), batch_size=4, drop_last=True, num_workers=1)
    assert "samples are lost" not in capfd.readouterr().err
