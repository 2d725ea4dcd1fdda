"""An image that is longer than any that whoever opens the data allows is refused before it is read."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata.errors import FormatError, LoadError

HUGE = 200 << 30  # a hole: it takes no room on the disk, but would in memory


@pytest.fixture(params=["folder", "tar"])
def path(request: pytest.FixtureRequest, photo_folder: Path, tmp_path: Path) -> Path:
    """Three images; the last but one is huge."""
    place = tmp_path / "few"
    place.mkdir()
    blob = (photo_folder / "cat" / "0.jpg").read_bytes()
    if request.param == "folder":
        for number in range(3):
            (place / f"{number}.jpg").write_bytes(blob)
        os.truncate(place / "1.jpg", HUGE)
        return place
    with open(place / "a.tar", "wb") as file:
        for number in range(3):
            size = HUGE if number == 1 else len(blob)
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = size
            file.write(member.tobuf(tarfile.GNU_FORMAT) + blob)
            file.seek(file.tell() - len(blob) + -(-size // 512) * 512)
        file.write(io.BytesIO(bytes(1024)).read())
    return place / "a.tar"


def test_it_is_an_error_that_names_it(path: Path) -> None:
    words = r"record '1': its 214,748,364,800 bytes are more than an image of 178,956,970 pixels takes"
    with fastdata.open(path) as reader:
        assert reader.image_size(1) == HUGE
        assert reader.image(0)[1] == reader.image(2)[1]
        with pytest.raises(FormatError, match=words):
            reader.image(1)
    data = fastdata.ImageDataset(path)
    with pytest.raises((FormatError, LoadError), match=words):
        data[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_names_or_skips_it(path: Path, workers: int) -> None:
    options: Any = {"num_workers": workers, "transform": fastdata.Resize((8, 8))}
    words = r"record '1': its 214,748,364,800 bytes"
    with fastdata.DataLoader(path, 3, **options) as loader, pytest.raises(FormatError, match=words):
        list(loader)
    with fastdata.DataLoader(path, 3, on_error="skip", **options) as loader:
        assert [len(labels) for _, labels in loader] == [3]
        assert {(key, "its 214,748,364,800 bytes" in reason) for key, reason in loader.skipped} == {("1", True)}


def test_the_limit_is_that_of_whoever_opens(photo_folder: Path) -> None:
    big = photo_folder / "cat" / "0.jpg"
    os.truncate(big, (64 << 20) + 8000 + 1)
    with fastdata.open(photo_folder, max_pixels=1000) as reader, pytest.raises(FormatError, match="of 1,000 pixels"):
        reader.image(0)
    with fastdata.open(photo_folder) as reader:
        assert len(reader.image(0)[1]) == (64 << 20) + 8001
