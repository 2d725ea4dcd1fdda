"""Locations of images: read without the index, they give the images that the reader gives."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdata
from fastdata import Record
from fastdata.cache import CachedReader
from fastdata.formats.base import Reader
from fastdata.formats.files import Scratch
from fastdata.formats.locations import COLUMNS, NO_FILE, blob_source_of, locations_of
from fastdata.formats.locator import BlobLocator
from fastdata.formats.packed import PackedReader
from fastdata.processes.main_module import needs_main
from tests import images, samples

ORDER = np.array([5, 0, 16, 5, 3], np.int64)


def read(source: Any, locations: Any) -> list[bytes]:
    scratch = Scratch()
    return [bytes(source.read(file, offset, size, scratch)) for _, file, offset, size, _ in locations.tolist()]


def expected(reader: Reader, indices: Any) -> list[bytes]:
    return [bytes(reader.image(index)[1]) for index in indices.tolist()]


KINDS = [*samples.LAYOUTS, "cached", "part", "several", "folder"]


def opened(kind: str, folder: Path) -> Reader:
    if kind == "cached":
        with fastdata.open(samples.write(folder, "tar")) as reader:
            return CachedReader(reader)
    if kind in ("part", "several"):
        shards = sorted(str(file) for file in Path(samples.write(folder, "shards")).glob("*.tar"))
        return fastdata.open(shards[1] if kind == "part" else shards[::-1])
    if kind == "folder":
        (folder / "cat").mkdir()
        for number in range(len(samples.RECORDS)):
            (folder / "cat" / f"{number:02d}.png").write_bytes(images.png(images.photo(8, 8, seed=number)))
        return fastdata.open(folder)
    return fastdata.open(samples.write(folder, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_locations_are_those_of_the_images(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as reader:
        indices = ORDER % len(reader)
        locations = locations_of(reader, indices)
        assert (locations.dtype, locations.shape) == (np.int64, (len(ORDER), COLUMNS))
        assert locations[:, 0].tolist() == indices.tolist()
        assert read(blob_source_of(reader), locations) == expected(reader, indices)
        assert locations_of(reader, indices[:0]).shape == (0, COLUMNS)


def child(source: Any, locations: Any, results: Any) -> None:
    results.send(read(source, locations))
    results.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_another_process_reads_them_without_the_reader(kind: str, tmp_path: Path, start_method: str) -> None:
    context = multiprocessing.get_context(start_method)
    receiver, sender = context.Pipe(duplex=False)
    with opened(kind, tmp_path) as reader:
        indices = ORDER % len(reader)
        process = context.Process(target=child, args=(blob_source_of(reader), locations_of(reader, indices), sender))
        process.start()
        sender.close()
        assert receiver.recv() == expected(reader, indices)
        process.join()
        receiver.close()


def test_what_is_sent_is_small_however_many_records_there_are(tmp_path: Path) -> None:
    sizes = []
    for count in (1, 5000):
        (tmp_path / str(count)).mkdir()
        records = (Record(f"{i}", {"jpg": b"x"}) for i in range(count))
        with fastdata.open(samples.write(tmp_path / str(count), "hdf5", records)) as reader:
            sizes.append(len(pickle.dumps(blob_source_of(reader))))
    assert sizes[1] < sizes[0] + 20


def test_the_image_may_be_any_field_of_a_record_or_none(tmp_path: Path) -> None:
    records = [
        Record("a", {"cls": b"1", "txt": b"no image", "png": b"third"}),
        Record("b", {"jpg": b"first", "png": b"not this one"}),
        Record("c", {"txt": b"none"}),
        Record("e", {"cls": b"0", "jpg": b""}),
    ]
    with fastdata.open(samples.write(tmp_path, "lmdb", records)) as reader:
        locations = locations_of(reader, np.arange(4))
        assert (locations[:, 1] == NO_FILE).tolist() == [False, False, True, False]
        assert read(blob_source_of(reader), locations[[0, 1, 3]]) == [b"third", b"first", b""]


def test_a_record_without_an_image_is_named_by_the_loader(tmp_path: Path) -> None:
    png = images.png(images.photo(8, 8, seed=1))
    records = [Record("a", {"png": png}), Record("b", {"txt": b"none"}), Record("c", {"png": png})]
    path = samples.write(tmp_path, "tar", records)
    for workers in (0, 2):
        with fastdata.DataLoader(path, num_workers=workers) as loader:
            batches = iter(loader)
            next(batches)
            with pytest.raises(fastdata.FormatError, match=r"record 'b'.*has no image: its fields are \['txt'\]"):
                next(batches)
        with fastdata.DataLoader(path, num_workers=workers, on_error="skip") as loader:
            assert len(list(loader)) == 3
            assert {(key, "has no image" in reason) for key, reason in loader.skipped} == {("b", True)}


def test_shared_memory_needs_no_main_module_in_workers(tmp_path: Path) -> None:
    with opened("cached", tmp_path) as reader:
        assert needs_main(blob_source_of(reader)) is False
        with pytest.raises(fastdata.FormatError, match="cached reader"):
            pickle.loads(pickle.dumps(blob_source_of(reader)))


class Upper:
    """A reader of somebody's own around one of ours."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __len__(self) -> int:
        return len(self._reader)

    def image(self, index: int, scratch: Scratch | None = None) -> tuple[str, bytes]:
        return "txt", bytes(self._reader.image(index, scratch)[1]).upper()


def test_a_wrapper_is_asked_itself(tmp_path: Path) -> None:
    with fastdata.open(samples.write(tmp_path, "lmdb", [Record("a", {"png": b"word"})])) as reader:
        wrapped: Any = Upper(reader)
        assert read(blob_source_of(wrapped), locations_of(wrapped, np.array([0]))) == [b"WORD"]


def test_a_subclass_that_changes_images_is_asked_itself(tmp_path: Path) -> None:
    class Reversed(PackedReader):
        def image(self, index: int, scratch: Scratch | None = None) -> tuple[str, bytes | memoryview]:
            return "txt", bytes(super().image(index, scratch)[1])[::-1]

    path = samples.write(tmp_path, "lmdb", [Record("a", {"png": b"word"})])
    with fastdata.open(path) as plain, Reversed(plain._packed) as reader:  # type: ignore[attr-defined]
        assert read(blob_source_of(reader), locations_of(reader, np.array([0]))) == [b"drow"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("start", -1), ("start", 99), ("field", 7), ("file", -1), ("file", 2), ("offset", -1), ("offset", 91),
        ("size", -1), ("size", 11), ("offset", 2**63 - 1), ("size", 2**63 - 1),
    ],
)  # fmt: skip
def test_a_damaged_index_gives_no_location_outside_the_file(column: str, value: int) -> None:
    columns = {
        "start": np.array([0, 1, 2, 3]), "field": np.array([0, 0, 0], np.uint16), "file": np.array([0, 1, 0], np.int32),
        "offset": np.array([0, 90, 5]), "size": np.array([10, 10, 10]), "crc": np.array([4, 5, 2**32 - 1], np.uint32),
    }  # fmt: skip
    whole = BlobLocator(columns, ["jpg"], [True], [100, 100]).locations(np.arange(3))
    assert whole.tolist() == [[0, 0, 0, 10, 4], [1, 1, 90, 10, 5], [2, 0, 5, 10, 2**32 - 1]]
    columns[column][1] = value
    locations = BlobLocator(columns, ["jpg"], [True], [100, 100]).locations(np.arange(3))
    assert locations[1].tolist()[1] == NO_FILE
    assert locations[2].tolist() == whole[2].tolist()
    if column != "start":
        assert locations[0].tolist() == whole[0].tolist()
