"""Which field is the image in foreign data; records without one are never skipped silently."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import fastdata
from fastdata.cli.verify import problems
from fastdata.errors import FormatError, OptionError, RecordError
from tests import images

PHOTO = np.full((16, 24, 3), 200, np.uint8)
PNG, JPEG, WEBP = images.png(PHOTO), images.jpeg(PHOTO), images.webp(PHOTO)
MASK = images.npy(np.full((16, 24, 3), 7, np.uint8))
FLOATS = images.npy(np.zeros(512, np.float32))
KINDS = ["tar", "lmdb"]


def write(folder: Path, kind: str, entries: Mapping[str, bytes], name: str = "x") -> str:
    """Entries as another program would write them: members of a tar, or keys of an LMDB."""
    path = folder / f"{name}.{kind}"
    if kind == "lmdb":
        with lmdb.open(str(path), map_size=1 << 26) as environment, environment.begin(write=True) as transaction:
            for key, value in entries.items():
                transaction.put(key.encode("utf-8", "surrogateescape"), value)
        return str(path)
    with tarfile.open(path, "w") as tar:
        for member, blob in entries.items():
            info = tarfile.TarInfo(member)
            info.size = len(blob)
            tar.addfile(info, io.BytesIO(blob))
    return str(path)


def served(path: Any, **options: Any) -> list[int]:
    """The first pixel of the first image, by every way of reading."""
    with fastdata.open(path, **options) as reader, pickle.loads(pickle.dumps(reader)) as copy:
        for one in (reader, copy):
            assert one[0].fields[one[0].image_field] == bytes(one.image(0)[1])
            assert one.image(0)[0] == one[0].image_field
            assert one.image_size(0) == len(one.image(0)[1])
            assert one.size(0) == sum(map(len, one[0].fields.values()))
        first = [int(fastdata.ImageDataset(one)[0][0][0, 0, 0]) for one in (reader, copy)]
    first.append(int(fastdata.ImageDataset(path, **options)[0][0][0, 0, 0]))
    with fastdata.ImageDataset(path, cache="ram", **options).reader as cached:
        first.append(int(fastdata.ImageDataset(cached)[0][0][0, 0, 0]))
    first.append(int(next(iter(fastdata.ImageStream(path, **options)))[0][0, 0, 0]))
    for workers in (0, 1):
        with fastdata.DataLoader(path, 1, num_workers=workers, **options) as loader:
            first.append(int(next(iter(loader))[0][0, 0, 0, 0]))
    return first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [MASK, FLOATS], ids=["mask", "floats"])
@pytest.mark.parametrize("image", ["png", "webp", "tif", "jpg"])
def test_an_array_is_never_taken_for_the_image_beside_one(kind: str, extra: bytes, image: str, tmp_path: Path) -> None:
    blob = {"png": PNG, "webp": WEBP, "jpg": JPEG, "tif": images.saved(PHOTO, "tiff")}[image]
    path = write(tmp_path, kind, {"s0.cls": b"1", "s0.npy": extra, f"s0.{image}": blob, "s0.seg.png": MASK})
    assert all(abs(value - 200) < 9 for value in served(path))
    with fastdata.open(path) as reader:
        assert next(iter(reader[0].fields)) == reader[0].image_field == image
        assert reader[0].fields == {image: blob, "cls": b"1", "npy": extra, "seg.png": MASK}
        assert list(problems(reader, 1)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_images_where_there_are_no_others(kind: str, tmp_path: Path) -> None:
    assert set(served(write(tmp_path, kind, {"a.npy": MASK, "a.cls": b"0", "b.npy": MASK, "b.cls": b"0"}))) == {7}
    mixed = write(tmp_path, kind, {"a.npy": MASK, "b.npy": MASK, "b.jpg": JPEG, "c.npy": MASK}, "mixed")
    with pytest.raises(FormatError, match=r"2 of 3 .* no image that can be read, such as 'a' with the fields 'npy'"):
        fastdata.open(mixed)


@pytest.mark.parametrize("kind", KINDS)
def test_of_several_images_one_must_be_named(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind, {"a.cls": b"0", "a.jpg": JPEG, "a.npy": MASK, "a.png": MASK})
    for way in (fastdata.open, fastdata.ImageDataset, fastdata.ImageStream, fastdata.DataLoader):
        with pytest.raises(FormatError, match="'a' has several images: 'jpg', 'png'; image_field= names the one"):
            way(path)
    assert all(abs(value - 200) < 9 for value in served(path, image_field="jpg"))
    assert set(served(path, image_field="npy")) == {7}


@pytest.mark.parametrize("kind", KINDS)
def test_any_field_can_be_named_as_the_image(kind: str, tmp_path: Path) -> None:
    entries = {"a.cls": b"0", "a.input.png": PNG, "a.jpg": MASK, "b.cls": b"0", "b.input.png": PNG, "b.photo": PNG}
    path = write(tmp_path, kind, entries)
    assert set(served(path, image_field="input.png")) == {200}
    with pytest.raises(FormatError, match=r"1 of 2 .* no field 'photo' that image_field names, such as 'a' with the"):
        fastdata.open(path, image_field="photo")
    named = write(tmp_path, kind, {"a.photo": PNG, "b.photo": b"none"}, "named")
    with fastdata.open(named, image_field="photo") as reader:
        (found,) = problems(reader, 1)
        assert (found.name, found.message.partition(":")[0]) == ("b", "field 'photo'")
    with fastdata.open(path, image_field="input.png") as reader:
        record = reader[0]
        assert record.image_field == "input.png"
        assert record.fields == {"cls": b"0", "input.png": PNG, "jpg": MASK}
        with fastdata.create(tmp_path / "copy.tar") as writer:
            with pytest.raises(RecordError, match=r"its image, 'input\.png', would not be found as its image"):
                writer.write(record)
            writer.write(fastdata.Record("a", {"png": record.fields["input.png"]}))


def test_a_field_of_ours_can_be_named_too(tmp_path: Path) -> None:
    for name in ("x.lmdb", "x.h5", "x.tar"):
        path = tmp_path / name
        with fastdata.create(path) as writer:
            writer.write(fastdata.Record("a", {"jpg": JPEG, "depth.png": images.png(PHOTO - 150)}))
        assert set(served(path, image_field="depth.png")) == {50}
        assert all(abs(value - 200) < 9 for value in served(path))
        with pytest.raises(FormatError, match="no field 'mask', which image_field names: there are"):
            fastdata.open(path, image_field="mask")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.jpg").write_bytes(JPEG)
    with pytest.raises(OptionError, match="a folder of images, whose records have no such fields"):
        fastdata.open(tmp_path / "folder", image_field="jpg")


PICKLED = pickle.dumps((JPEG, 3))


@pytest.mark.parametrize(
    ("kind", "entries", "message"),
    [
        ("lmdb", {str(n): PICKLED for n in range(40)}, "40 entries, none of them .*image .*'0'"),
        ("lmdb", {f"{n}.pkl": PICKLED for n in range(40)}, "40 entries, none of them .*image .*'0'"),
        ("lmdb", {f"{n}": JPEG if n % 4 else PICKLED for n in range(40)}, "10 of 40 entries with no image .*'0'"),
        ("lmdb", {"a": b"\0\0\0\x18ftypheic" + bytes(12), "__len__": b"1"}, "1 entries, none of them .*'a'"),
        ("lmdb", {"a.jpg": JPEG, "labels": b"0"}, "1 of 2 entries with no image .*'labels'"),
        ("lmdb", {"num-samples": b"60", "__keys__": b"..", "label-0": b"1"}, "1 entries, none of them"),
        ("tar", {f"{n}.txt": b"text" for n in range(3)}, "3 records, none of them .*'0' with the fields 'txt'"),
        ("tar", {"a.jpg": JPEG, "b.txt": b"b", "c.jpg": JPEG}, "1 of 3 records with no image .*'b'"),
        ("tar", {"a.jpg": JPEG, "b": JPEG, "README": b"text"}, "1 of 2 records .*'b', whose name has no suffix"),
        ("tar", {"a": b"1", "README": b"text"}, "1 records, none of them .*'a'"),
        ("tar", {"0.jpg": JPEG, "1.jpg": JPEG, "0.cls": b"0", "1.cls": b"1"}, "2 of 4 records with no image"),
    ],
)
def test_records_without_an_image_are_counted(
    kind: str, entries: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, kind, entries)
    for way in (fastdata.open, fastdata.ImageDataset, fastdata.ImageStream, fastdata.DataLoader):
        with pytest.raises(FormatError, match=message) as caught:
            way(path)
        assert path in str(caught.value)


def test_entries_beside_the_records_are_skipped(tmp_path: Path) -> None:
    beside = {"README": b"", "LICENSE": b"text", "readme.md": b"# text", "__meta__/x.json": b"{}", ".hidden.jpg": b""}
    assert len(fastdata.open(write(tmp_path, "tar", {**beside, "a.jpg": JPEG}))) == 1
    books = dict.fromkeys(("__len__", "__keys__", "num-samples", "length", "keys", "meta_info", "__a__.json"), b"2")
    with fastdata.open(write(tmp_path, "lmdb", {**books, "a": JPEG, "b.png": PNG})) as reader:
        assert list(reader.keys) == ["a", "b"]


def test_keys_of_images_can_be_described(tmp_path: Path) -> None:
    """Where an LMDB holds other things beside them."""
    path = write(tmp_path, "lmdb", {"image-000000001": JPEG, "image-000000002": PNG, "gt-1": b"text", "x.jpg": b"no"})
    with pytest.raises(FormatError, match="1 of 4 entries"):
        fastdata.open(path)
    with fastdata.open(path, image_field="image-%09d") as reader:
        assert list(reader.keys) == ["image-000000001", "image-000000002"]
        assert [reader[n].image_field for n in (0, 1)] == ["jpg", "png"]
    for pattern in ("image-%d-%d", "image-%x", "100%"):
        with pytest.raises(OptionError, match="image_field"):
            fastdata.open(path, image_field=pattern)
