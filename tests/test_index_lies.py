"""An impossible index: refused when it is opened, or an error when it is used; never other records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import fastdata
from fastdata import Record
from fastdata.errors import FormatError
from fastdata.formats.index import DTYPES, key_hash
from tests import samples

COUNT = 40
CLASSES = ("a", "b")
RECORDS = [
    Record(f"{'ab'[n % 2]}/{n:03d}", {"jpg": samples.payload(n, 900), "cls": b"%d" % (n % 2)}, f"p{n}.jpg")
    for n in range(COUNT)
]
Array = NDArray[Any]


@pytest.fixture(params=samples.LAYOUTS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return samples.write(tmp_path, request.param, RECORDS, classes=CLASSES)


def place_of(path: str, column: str) -> tuple[str, int, int]:
    """(file, offset, elements) of a column."""
    if path.endswith(".h5"):
        with h5py.File(path) as file:
            data = file[f"index/{column}"]
            return path, data.id.get_offset(), data.size
    name = path if os.path.isfile(path) else os.path.join(path, "index.fastdata")
    blob = Path(name).read_bytes()
    begin = blob.index(b"FDINDEX1")
    base = begin + 16 + int(blob[begin + 8 : begin + 16])
    _, length, offset = json.loads(blob[begin + 16 : base])[column]
    return name, base + offset, length


def change(path: str, column: str, what: Callable[[Array], None]) -> None:
    name, offset, length = place_of(path, column)
    array: Array = np.memmap(name, DTYPES[column], "r+", offset, (length,))
    what(array)
    array.flush()  # type: ignore[attr-defined]


def put(row: int, value: int) -> Callable[[Array], None]:
    def change(array: Array) -> None:
        array[row] = value

    return change


def swap(array: Array) -> None:
    array[5:7] = array[5:7][::-1].copy()


def twice(array: Array) -> None:
    array[6] = array[5]


CANNOT_BE: list[tuple[str, Callable[[Array], None]]] = [
    ("start", swap), ("start", put(3, -1)), ("start", put(3, 2**62)), ("key_end", swap), ("key_end", put(1, 0)),
    ("key_end", twice), ("key_end", put(1, -9)), ("path_end", swap), ("path_end", put(1, -9)), ("hash", swap),
    ("hash_row", put(3, 2**62)), ("hash_row", put(3, -1)), ("hash_row", twice), ("file", put(-1, 99)),
    ("start", put(3, 9)), ("key_end", put(5, 1000)), ("path_end", put(3, 2**21)),
    ("file", put(0, -1)), ("file", put(3, 99)), ("size", put(3, -1)), ("size", put(3, 2**62)), ("label", put(0, 2**62)),
    ("label", put(1, -7)), ("label", put(1, len(CLASSES))), ("key_bytes", put(0, 27)),
]  # fmt: skip


@pytest.mark.parametrize(("column", "what"), CANNOT_BE, ids=[f"{n}-{c}" for n, (c, _) in enumerate(CANNOT_BE)])
def test_what_cannot_be_is_refused(path: str, column: str, what: Callable[[Array], None]) -> None:
    change(path, column, what)
    with pytest.raises(FormatError, match=rf"data.*damaged index \(column .*{column}") as caught:
        fastdata.open(path)
    assert path in str(caught.value)


def test_overlapping_records_are_refused(path: str) -> None:
    """Else verifying, or filling a cache, would take as long as there are records, times the length of the files."""

    def all_of_it(array: Array) -> None:
        array[:] = 30_000

    change(path, "size", all_of_it)
    with pytest.raises(FormatError, match="size adds up to more than the data"):
        fastdata.open(path)


@pytest.mark.parametrize("column", ["hash", "hash_row"])
def test_a_key_that_is_there_is_found_or_the_index_is_damaged(path: str, column: str) -> None:
    if column == "hash":  # one that still lies between its neighbours
        change(path, column, lambda array: array.__setitem__(7, array[7] + np.uint64(1)))
    else:
        change(path, column, swap)
    errors = []
    with fastdata.open(path) as reader:
        for row, key in enumerate(reader.keys):
            try:
                assert reader.find(key) == row
            except FormatError as error:
                errors.append(str(error))
    assert [f"{path}: damaged index" in message for message in errors] == [True] * (1 if column == "hash" else 2)


def test_where_all_hashes_are_wrong(path: str) -> None:
    change(path, "hash", lambda array: array.__iadd__(np.uint64(1)))
    with fastdata.open(path) as reader:
        for key in (*reader.keys, "not there"):
            with pytest.raises(FormatError, match="damaged index"):
                reader.find(key)


def test_a_key_that_is_not_there_stays_a_key_error(path: str) -> None:
    with fastdata.open(path) as reader:
        for key in ("", "a/001", "\ud800", "x" * 5000):
            with pytest.raises(KeyError):
                reader.find(key)
    empty = samples.write(Path(path).parent, "lmdb", [], overwrite=True)
    with fastdata.open(empty) as reader, pytest.raises(KeyError):
        reader.find("a")


def test_hashes_at_both_ends_are_found(path: str) -> None:
    order = sorted(RECORDS, key=lambda item: key_hash(item.key.encode()))
    with fastdata.open(path) as reader:
        for item in (order[0], order[-1]):
            assert reader[reader.find(item.key)].path == item.path


def test_labels_may_be_any_where_there_are_no_classes(tmp_path: Path) -> None:
    records = [Record(str(n), {"jpg": b"", "cls": b"%d" % label}) for n, label in enumerate((-5, 10**17, 3))]
    with fastdata.open(samples.write(tmp_path, "tar", records, classes=None)) as reader:
        assert reader.labels.tolist() == [-5, 10**17, 3]
