"""Files that are cut, or written over in place, while a data set is read: an error in every format, never a crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fastdata
from fastdata import Record
from fastdata.cache import CachedReader
from fastdata.errors import FormatError
from fastdata.formats import opening
from fastdata.formats.base import Reader
from fastdata.formats.files import Scratch
from fastdata.formats.locations import locations_of
from tests import images, samples

RECORDS = [Record(f"r/{n}", {"png": images.png(images.photo(16, 16, seed=n)), "cls": b"0"}) for n in range(12)]
CUT = r"(0|600) bytes, but its data set says"


@pytest.fixture(params=samples.LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def path(tmp_path: Path, layout: str) -> str:
    return samples.write(tmp_path, layout, RECORDS, shard_size=3000)


def cut(path: str, length: int, *, index: bool = False) -> None:
    """Cut each data file in place, and the index, if asked for and a file of its own."""
    for file in [Path(path)] if os.path.isfile(path) else sorted(Path(path).iterdir()):
        if file.suffix in (".mdb", ".tar", ".h5") or (index and file.suffix == ".fastdata"):
            os.truncate(file, length)


WAYS: dict[str, Callable[[Reader], object]] = {
    "record": lambda reader: reader[len(reader) - 1],
    "image": lambda reader: reader.image(len(reader) - 1),
    "scratch": lambda reader: reader.image(len(reader) - 1, Scratch()),  # type: ignore[call-arg]
    "cache": lambda reader: CachedReader(reader),
    "dataset": lambda reader: fastdata.ImageDataset(reader)[len(reader) - 1],
    "stream": lambda reader: list(fastdata.ImageStream(reader)),
}


@pytest.mark.parametrize("length", [0, 600])
@pytest.mark.parametrize("way", WAYS)
def test_whoever_reads_says_so(path: str, way: str, length: int) -> None:
    with fastdata.open(path) as reader:
        assert samples.content(reader) == samples.expected(RECORDS)  # so the files are open
        cut(path, length)
        with pytest.raises(FormatError, match=CUT):
            WAYS[way](reader)
        assert reader.keys[3] == "r/3"
        assert reader.find("r/3") == 3
        with pytest.raises(FormatError):
            fastdata.open(path)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_says_so(path: str, workers: int) -> None:
    with fastdata.DataLoader(path, 2, num_workers=workers, prefetch_factor=1, collate_fn=len) as loader:
        batches = iter(loader)
        next(batches)
        cut(path, 0)
        with pytest.raises(FormatError, match=CUT):
            list(batches)


def test_verify_names_it(path: str) -> None:
    with fastdata.open(path) as reader:
        samples.content(reader)
        cut(path, 600)
        found = dict(reader.verify())
    assert "r/11" in found
    assert any("600 bytes, but its data set says" in message for message in found.values())


def test_nothing_of_a_data_set_is_mapped(path: str) -> None:
    with fastdata.open(path) as reader:
        samples.content(reader)
        assert list(reader.verify()) == []
        assert path not in Path("/proc/self/maps").read_text()


LOOKS: dict[str, Callable[[Reader], object]] = {
    "record": lambda reader: reader[5],
    "image": lambda reader: reader.image(5),
    "size": lambda reader: reader.image_size(5),
    "key": lambda reader: reader.keys[5],
    "path": lambda reader: reader.paths[5],
    "find": lambda reader: reader.find("r/5"),
    "locations": lambda reader: locations_of(reader, np.arange(3)),
}


def test_a_large_index_is_mapped_and_reads_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_COPIED", 100)
    with fastdata.open(path) as reader:
        assert path in Path("/proc/self/maps").read_text()
        assert samples.content(reader) == samples.expected(RECORDS)
        assert [reader.find(key) for key in reader.keys] == list(range(len(RECORDS)))
        assert list(reader.verify()) == []


@pytest.mark.parametrize("look", LOOKS)
def test_a_large_index_that_is_cut_says_so(path: str, look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_COPIED", 100)
    with fastdata.open(path) as reader:
        LOOKS[look](reader)
        cut(path, 600, index=True)
        with pytest.raises(FormatError, match="600 bytes, but its data set says"):
            LOOKS[look](reader)
        assert reader.labels.tolist() == [0] * len(RECORDS)
        assert ["600 bytes, but its data set says" in message for _, message in reader.verify()] == [True]
