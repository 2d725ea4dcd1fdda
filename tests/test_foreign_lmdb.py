"""Foreign LMDBs: read in place, or refused with an error; never a crash."""

from __future__ import annotations

import io
import pickle
import random
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

import fastdata
from fastdata.errors import FormatError
from fastdata.formats.lmdb_pages import walk
from tests import samples


def make(folder: Path, entries: dict[bytes, bytes], **options: object) -> str:
    path = folder / "foreign"
    with lmdb.open(str(path), map_size=1 << 26, **options) as environment:  # type: ignore[arg-type]
        for key, value in entries.items():
            with environment.begin(write=True) as transaction:
                transaction.put(key, value)
    return str(path)


def found(path: str) -> dict[str, dict[str, bytes]]:
    with fastdata.open(path) as reader:
        assert list(reader.verify()) == []
        return {reader.keys[i]: dict(reader[i].fields) for i in range(len(reader))}


def png_image() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "png")
    return out.getvalue()


def test_file_names_as_keys(tmp_path: Path) -> None:
    """As written by mmengine and others."""
    path = make(tmp_path, {b"b/2.png": b"two" * 3000, b"a/1.jpg": b"one", b"a/1-2.jpg": b"dash"})
    assert found(path) == {"a/1-2": {"jpg": b"dash"}, "a/1": {"jpg": b"one"}, "b/2": {"png": b"two" * 3000}}


def test_keys_and_fields_as_ours(tmp_path: Path) -> None:
    path = make(tmp_path, {b"1.jpg": b"one", b"1.cls": b"4", b"2.jpg": b""})
    assert found(path) == {"1": {"cls": b"4", "jpg": b"one"}, "2": {"jpg": b""}}
    with fastdata.open(path) as reader, pickle.loads(pickle.dumps(reader)) as copy:
        assert reader.labels.tolist() == copy.labels.tolist() == [4, -1]
        assert copy[0] == reader[0]


def test_keys_without_a_suffix_are_known_by_content(tmp_path: Path) -> None:
    path = make(tmp_path, {b"000000": png_image(), b"__len__": pickle.dumps(1), b"__keys__": pickle.dumps([b"000000"])})
    assert found(path) == {"000000": {"png": png_image()}}


def test_a_field_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="twice"):
        fastdata.open(make(tmp_path, {b"a.jpg": b"1", b"a.JPG": b"2"}))


def test_an_lmdb_in_one_file(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "x.mdb"), subdir=False) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a.jpg", b"1")
    assert found(str(tmp_path / "x.mdb")) == {"a": {"jpg": b"1"}}


def test_a_users_own_environment_may_stay_open(tmp_path: Path) -> None:
    path = make(tmp_path, {b"a.jpg": b"1"})
    with lmdb.open(path):
        assert found(path) == {"a": {"jpg": b"1"}}


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    named = tmp_path / "named"
    with lmdb.open(str(named), max_dbs=2) as environment:
        train = environment.open_db(b"train")
        with environment.begin(write=True, db=train) as transaction:
            transaction.put(b"a.jpg", b"1")
    with pytest.raises(FormatError, match="named databases"):
        fastdata.open(named)
    (tmp_path / "not").mkdir()
    (tmp_path / "not" / "data.mdb").write_bytes(b"something else" * 1000)
    with pytest.raises(FormatError, match="not an LMDB data file"):
        fastdata.open(tmp_path / "not")


def test_an_empty_one(tmp_path: Path) -> None:
    assert found(make(tmp_path, {})) == {}


def test_the_walk_finds_what_lmdb_finds(tmp_path: Path) -> None:
    """Deep trees, large values, pages that were freed and used again, deleted entries."""
    rng = random.Random(1)
    entries = {b"%05d.%s" % (rng.randrange(10**5), b"k" * rng.randrange(1, 300)): b"" for _ in range(1500)}
    path = tmp_path / "deep"
    with lmdb.open(str(path), map_size=1 << 27) as environment:
        for turn in range(3):
            with environment.begin(write=True) as transaction:
                for key in entries:
                    entries[key] = rng.randbytes(rng.choice([0, 1, 100, 2000, 5000, 30_000]))
                    transaction.put(key, entries[key])
            with environment.begin(write=True) as transaction:
                for key in rng.sample(sorted(entries), 100):
                    del entries[key]
                    transaction.delete(key)
            data = memoryview((path / "data.mdb").read_bytes())
            places = list(walk(data, "here"))
            assert {key: bytes(data[place : place + size]) for key, place, size in places} == entries, turn
            assert [key for key, _, _ in places] == sorted(entries)


@pytest.mark.slow
def test_cut_and_damaged_files_are_errors(tmp_path: Path) -> None:
    path = Path(make(tmp_path, {b"%04d.jpg" % i: bytes([i % 251]) * (i % 7 * 900) for i in range(300)}))
    data = path / "data.mdb"
    whole = data.read_bytes()
    rng = random.Random(2)
    content = found(str(path))
    for length in (0, 1, 100, 4095, 4096, 8191, 8192, *range(8192, len(whole), len(whole) // 20)):
        data.write_bytes(whole[:length])
        try:
            assert found(str(path)) == content  # only pages that are free were cut away
            assert length > 0.8 * len(whole)
        except FormatError as error:
            message = str(error)
            assert "foreign" in message
    pages = range(0, len(whole), 4096)
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(4):  # heads and node tables are at the beginning of a page
            damaged[rng.choice(pages) + rng.randrange(80)] = rng.randrange(256)
        data.write_bytes(damaged)
        try:
            found(str(path))
        except FormatError as error:
            message = str(error)
            assert "foreign" in message


def test_ours_without_its_index_reads_as_foreign(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "lmdb"))
    (path / "index.fastdata").unlink()
    (path / "manifest.json").unlink()
    with fastdata.open(path) as reader:
        for item in samples.RECORDS:
            assert dict(reader[reader.find(item.key)].fields) == dict(item.fields)
