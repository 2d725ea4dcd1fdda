"""`verify` checks every byte that a reader depends on, ours or the plain library."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import pytest

import fastdata
from fastdata import Record
from fastdata.errors import FormatError
from fastdata.formats.index import DTYPES
from tests import samples
from tests.test_golden import MADE_WITH_HDF5

RECORDS = [
    Record("cat/0", {"jpg": samples.payload(0, 150), "cls": b"0"}, "cat/0.JPG"),
    Record("é" * 60, {"jpg": samples.payload(1, 90), "cls": b"1", "txt": b""}, "é"),  # a PAX record in tars
]
# One of so many bytes is changed, which covers each number in a header; fewer of zeros, most of which are padding.
STEP, ZEROS = 4, 64
# HDF5's own blocks that have a fixed size here, by their signature: the group's heap and its tree of 13 names.
BLOCKS = {b"FRHP": 146, b"BTHD": 38, b"BTLF": 6 + 13 * 11 + 4, b"FHDB": 512}
FREE = {b"FSHD": 128, b"FSSE": 64}


def write(folder: Path, layout: str) -> str:
    return samples.write(folder, layout, RECORDS, classes=("cat", "dog"), shard_size=2000)


def whole(path: str) -> bool:
    try:
        with fastdata.open(path) as reader:
            return not list(reader.verify())
    except FormatError:
        return False


def some(blob: bytes, places: Iterable[int]) -> Iterator[int]:
    return (place for place in places if place % (STEP if blob[place] else ZEROS) == 0)


def changed(file: Path, places: Iterator[int], path: str) -> list[int]:
    """The offsets at which a changed byte goes unnoticed."""
    unnoticed, blob = [], file.read_bytes()
    for place in places:
        file.write_bytes(blob[:place] + bytes([blob[place] ^ 0xFF]) + blob[place + 1 :])
        if whole(path):
            unnoticed.append(place)
    file.write_bytes(blob)
    return unnoticed


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["lmdb", "tar", "shards"])
def test_every_byte_counts(tmp_path: Path, layout: str) -> None:
    path = write(tmp_path, layout)
    assert whole(path)
    for file in sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]:
        blob = file.read_bytes()
        assert changed(file, some(blob, range(len(blob))), path) == [], file.name


def used(path: str) -> set[int]:
    """The offsets in an HDF5 file that h5py reads: its own blocks, and the data sets."""
    blob = Path(path).read_bytes()
    spans = [(0, 48)]  # the superblock
    with h5py.File(path, "r", locking=False) as file:
        datasets = [file["payload"], file["manifest"], *(file[f"index/{name}"] for name in DTYPES)]
        for each in (file, file["index"], *datasets):
            info = h5py.h5o.get_info(each.id)
            spans.append((info.addr, info.hdr.space.total))
        spans += [(each.id.get_offset(), each.nbytes) for each in datasets if each.size]
    for signature, size in BLOCKS.items():
        assert blob.count(signature) == 1
        spans.append((blob.index(signature), size))
    return {place for begin, size in spans for place in range(begin, begin + size)}


@pytest.mark.slow
@pytest.mark.skipif(h5py.version.hdf5_version_tuple[:2] != MADE_WITH_HDF5, reason="its own blocks may be others")
def test_of_hdf5_every_byte_counts_but_what_is_between_its_blocks(tmp_path: Path) -> None:
    path = write(tmp_path, "hdf5")
    assert whole(path)
    file, places = Path(path), used(path)
    blob = file.read_bytes()
    rest = [place for place in range(len(blob)) if place not in places]
    # Zeros, and the free space of the group's heap, which HDF5 reads only to write.
    free = {place for name, size in FREE.items() for place in range(blob.index(name), blob.index(name) + size)}
    assert free < set(rest)
    assert {place for place in rest if blob[place]} < free
    inverted = bytearray(blob)
    for place in rest:
        inverted[place] ^= 0xFF
    file.write_bytes(inverted)
    assert whole(path)
    with h5py.File(io.BytesIO(inverted), "r") as plain:
        assert plain["payload"][:150].tobytes() == RECORDS[0].fields["jpg"]
        assert [plain["index"][name].size for name in DTYPES] == [plain["index"][name][()].size for name in DTYPES]
    file.write_bytes(blob)
    assert changed(file, some(blob, sorted(places)), path) == []
