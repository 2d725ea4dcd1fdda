"""Data sets of every released layout, made once by our own writer: each later version must still read them.

`python -m tests.test_golden DIR` writes the set of the current layout; each layout has a folder in `tests/golden`.
"""

from __future__ import annotations

import mmap
import shutil
import sys
from pathlib import Path

import h5py
import pytest

import fastdata
from fastdata import Record
from tests import samples

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir())
# HDF5's own bytes (never their meaning) depend on its version.
MADE_WITH_HDF5 = (2, 0)
MADE_WITH_PAGES_OF = 4096

# The smallest image: one black pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c636060600000000400"
    "01f61738550000000049454e44ae426082"
)
RECORDS = (
    Record("cat/1", {"png": PNG, "cls": b"0"}, "cat/1.PNG"),
    Record("cat/2%2E5 m", {"jpg": samples.payload(1, 150), "cls": b"0"}, "cat/2.5 m.jpeg"),
    Record("é/ñ%FF", {"jpg": samples.payload(2, 90) + b"\0\0", "cls": b"1", "mask.png": b""}, "é/ñ\udcff"),
    Record("n" * 470, {"npy": b"", "cls": b"1", "json": b'{"a": 1}'}, "n" * 470),
)
CLASSES = ("cat", "é")
OPTIONS = {"resize": 256, "quality": 90, "pad_color": [0, 0, 0]}


def make(folder: Path, layout: str) -> Path:
    return Path(samples.write(folder, layout, RECORDS, classes=CLASSES, options=OPTIONS, shard_size=4000))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_every_layout_is_still_read(version: str, layout: str) -> None:
    with fastdata.open(GOLDEN / version / samples.LAYOUTS[layout]) as reader:
        assert samples.content(reader) == samples.expected(RECORDS)
        assert list(reader.verify()) == []
        assert reader.labels.tolist() == [0, 0, 1, 1]
        assert (reader.classes, reader.manifest.options) == (CLASSES, OPTIONS)
        assert reader.find("é/ñ%FF") == 2
        assert reader.image(0) == ("png", PNG)
        assert reader.manifest.version == int(version.removeprefix("v"))


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_the_writer_still_writes_the_same_bytes(tmp_path: Path, layout: str) -> None:
    if layout == "lmdb" and mmap.PAGESIZE != MADE_WITH_PAGES_OF:
        pytest.skip(f"pages of {mmap.PAGESIZE} bytes; the golden LMDB has pages of {MADE_WITH_PAGES_OF}")
    if layout == "hdf5" and h5py.version.hdf5_version_tuple[:2] != MADE_WITH_HDF5:
        pytest.skip(f"HDF5 {h5py.version.hdf5_version}; the golden file was made with {MADE_WITH_HDF5}")
    made, golden = make(tmp_path, layout), GOLDEN / VERSIONS[-1] / samples.LAYOUTS[layout]
    assert samples.files(made) == samples.files(golden)


def test_all_hold_the_same(tmp_path: Path) -> None:
    for version in VERSIONS:
        prints = set()
        for name in samples.LAYOUTS.values():
            with fastdata.open(GOLDEN / version / name) as reader:
                prints.add(reader.manifest.fingerprint)
        assert len(prints) == 1


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for kind in samples.LAYOUTS:
        make(target, kind)
