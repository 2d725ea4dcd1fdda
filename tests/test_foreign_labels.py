"""Labels of foreign data: read correctly, or an error that says how to read them; never silently -1."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdata
from fastdata.errors import FormatError, OptionError
from tests import images
from tests.test_foreign_images import JPEG, KINDS, MASK, write

COUNT = 6
LABELS = [number % 3 for number in range(COUNT)]


def pairs(field: str, values: list[Any]) -> dict[str, bytes]:
    """An image and one more field in each record."""
    entries = {}
    for number, value in enumerate(values):
        entries[f"{number}.jpg"] = JPEG
        entries[f"{number}.{field}"] = value if isinstance(value, bytes) else str(value).encode()
    return entries


def described(**more: Any) -> list[Any]:
    return [json.dumps({"url": "u", "width": 24, **{k: v[n] for k, v in more.items()}}) for n in range(COUNT)]


def labels(path: Any, **options: Any) -> list[int]:
    """By every way of reading."""
    with fastdata.open(path, **options) as reader, pickle.loads(pickle.dumps(reader)) as copy:
        found = reader.labels.tolist()
        assert copy.labels.tolist() == found
        if options.get("label_field") != "":
            assert [reader[n].label for n in range(len(reader))] == found
        assert [reader.size(n) for n in range(len(reader))] == [
            sum(map(len, reader[n].fields.values())) for n in range(len(reader))
        ]
    with fastdata.ImageDataset(path, cache="ram", **options).reader as cached:
        assert cached.labels.tolist() == found
    assert [label for _, label in fastdata.ImageStream(path, **options)] == found
    with fastdata.DataLoader(path, 2, num_workers=0, **options) as loader:
        assert [label for _, batch in loader for label in batch.tolist()] == found
    return list(found)


NUMBERED = {f"image-{n:09d}": JPEG for n in range(1, COUNT + 1)} | {"num-samples": b"6"}


def test_entries_of_labels_beside_entries_of_images(tmp_path: Path) -> None:
    entries = NUMBERED | {f"label-{n:09d}": b"%d" % label for n, label in enumerate(LABELS, 1)}
    path = write(tmp_path, "lmdb", entries)
    assert labels(path) == labels(path, label_field="label-%09d") == LABELS
    with fastdata.open(path) as reader:
        assert (reader.keys[0], reader[0].fields) == ("image-000000001", {"jpg": JPEG, "cls": b"0"})
    assert labels(path, label_field="") == [-1] * COUNT
    with fastdata.open(path, label_field="") as reader:
        assert reader[1].fields == {"jpg": JPEG, "label": b"1"}


def test_labels_that_are_text_or_missing_beside_entries_of_images(tmp_path: Path) -> None:
    entries = NUMBERED | {f"label-{n:09d}": b"word" for n in range(1, COUNT + 1)}
    words = write(tmp_path, "lmdb", entries, "words")
    with pytest.raises(FormatError, match=r"6 label.? without an integer .*'image-000000001'.*b'word'.*label_field="):
        fastdata.open(words)
    assert labels(words, label_field="") == [-1] * COUNT
    del entries["label-000000003"]
    some = write(tmp_path, "lmdb", dict.fromkeys(entries, b"1") | NUMBERED, "some")
    with pytest.raises(FormatError, match="1 image without an entry with the label, such as 'image-000000003' without"):
        fastdata.open(some)
    with pytest.raises(FormatError, match=r"6 images without an entry .* without 'class-1'"):
        fastdata.open(words, label_field="class-%d")


def test_keys_of_labels_can_be_described(tmp_path: Path) -> None:
    entries = {f"{n:05d}": JPEG for n in range(COUNT)} | {f"{n:05d}_y": b"%d" % y for n, y in enumerate(LABELS)}
    path = write(tmp_path, "lmdb", entries | {"__len__": b"6"})
    with pytest.raises(FormatError, match=r"6 of 12 entries with no image"):
        fastdata.open(path)
    for pattern in ("%05d_y", "%s_y"):
        assert labels(path, label_field=pattern) == LABELS
    for pattern in ("%05d_%s", "%x_y", "50%", "json:", ":label", "json:a..b"):
        with pytest.raises(OptionError, match="label_field"):
            fastdata.open(path, label_field=pattern)


READ = {
    "cls": ("cls", pairs("cls", LABELS)),
    "text": ("txt", pairs("txt", [f" {label}\n" for label in LABELS])),
    "a field called label": ("label", pairs("label", LABELS)),
    "any integers": ("y", pairs("y", LABELS)),
    "json": ("json:label", pairs("json", described(label=LABELS))),
    "json with another name": ("json:category_id", pairs("json", described(category_id=LABELS))),
    "json with a name in capitals": ("json:Class ID", pairs("json", described(**{"Class ID": LABELS}))),
    "json, as text": ("json:target", pairs("json", described(target=[str(label) for label in LABELS]))),
    "json, further in": (
        "json:annotation.category_id",
        pairs("json", described(annotation=[{"category_id": label} for label in LABELS])),
    ),
    "json under another name": ("meta.json:label", pairs("meta.json", described(label=LABELS))),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", READ)
def test_labels_are_read_where_they_are_named(kind: str, case: str, tmp_path: Path) -> None:
    field, entries = READ[case]
    path = write(tmp_path, kind, entries)
    assert labels(path, label_field=field) == LABELS
    if field == "cls":
        assert labels(path) == LABELS
    else:
        with pytest.raises(
            FormatError, match=rf"6 records .*{field!r}.*label_field='{field}' reads it; label_field=''"
        ):
            fastdata.open(path)
    assert labels(path, label_field="") == [-1] * COUNT
    with fastdata.open(path, label_field=field) as reader, fastdata.create(tmp_path / "copy.tar") as writer:
        for number in range(COUNT):
            writer.write(reader[number])
    assert labels(tmp_path / "copy.tar") == LABELS


def test_json_within_lists_is_read_where_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "tar", pairs("json", described(objects=[[{"kind": label}] for label in LABELS])))
    assert labels(path, label_field="json:objects.0.kind") == LABELS


REFUSED = {
    "cls in words": (pairs("cls", ["cat"] * COUNT), "6 label.? without an integer .*b'cat'"),
    "one cls in words": (pairs("cls", [0, "x", 0, 0, 0, 0]), "1 label.? without an integer .record '1'"),
    "cls of floats": (pairs("cls", ["1.0"] * COUNT), "6 label.? without an integer"),
    "an empty cls": (pairs("cls", [b""] * COUNT), "6 label.? without an integer"),
    "pickles": (pairs("pyd", [pickle.dumps(1)] * COUNT), "6 records .*'pyd'.*write the class numbers as `cls`"),
    "a pickled cls": (pairs("cls", [pickle.dumps(1)] * COUNT), "6 label.? without an integer"),
    "message packs": (pairs("mp", [b"\x81\xa5label\x01"] * COUNT), "6 records .*'mp'"),
    "a class in words": (pairs("class", ["cat"] * COUNT), "6 records .*'class'"),
    "targets": (pairs("target.txt", ["cat"] * COUNT), "6 records .*'target.txt'"),
    "json in words": (pairs("json", described(label=["cat"] * COUNT)), "6 records .*'json:label'"),
    "json of one record": (pairs("json", [*["{}"] * 5, '{"cls": 2}']), "1 record .*'json:cls', such as '5'"),
    "labels in a list": (
        pairs("json", described(objects=[[{"label": 1}]] * COUNT)),
        r"6 records .*'json:objects\.0\.label'",
    ),
    "a list of labels": (pairs("json", ['[{"category_id": 1}]'] * COUNT), r"6 records .*'json:0\.category_id'"),
    "a description": (pairs("xml", ["<annotation><name>cat</name></annotation>"] * COUNT), "6 records .*'xml'.*`cls`"),
    "json of more than is looked into": (
        pairs("json", [b'{"label": 1, "x": "' + b" " * (5 << 20) + b'"}']),
        "1 record .*'json'.*`cls`",
    ),
    "an array of one number": (pairs("npy", [images.npy(np.array(n)) for n in LABELS]), "6 records .*'npy'"),
    "labels of some": (pairs("cls", [1, 1]) | {"9.jpg": JPEG, "9.json": b'{"label": 1}'}, "1 record .*'json:label'"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", REFUSED)
def test_labels_that_are_not_understood_are_refused(kind: str, case: str, tmp_path: Path) -> None:
    entries, message = REFUSED[case]
    path = write(tmp_path, kind, entries)
    for way in (fastdata.open, fastdata.ImageDataset, fastdata.ImageStream, fastdata.DataLoader):
        with pytest.raises(FormatError, match=f"{message}.*label_field=''") as caught:
            way(path)
        assert path in str(caught.value)
    assert labels(path, label_field="") == [-1] * (len(entries) // 2)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("json:label", r"1 label.? without an integer .record '2': there is no 'label' in dict \['width'\]"),
        ("json", "4 label.? without an integer"),
        ("txt", "2 records without the field 'txt', which label_field names, such as '1'"),
        ("text", "1 label.? without an integer .record '2': field 'text' is b'a'"),
        ("json:width", "1 label .*'width' in field 'json' is 2.5"),
    ],
)
def test_a_named_label_that_some_records_lack_is_an_error(field: str, message: str, tmp_path: Path) -> None:
    rows = ['{"label": 0, "width": 1}', '{"label": "1", "width": 1}', '{"width": 2.5}', '{"label": 3, "width": 1}']
    entries = pairs("json", rows) | {"0.txt": b"1", "3.txt": b"1", "1.text": b"1", "2.text": b"a"}
    path = write(tmp_path, "tar", {name: entries[name] for name in sorted(entries)})
    with pytest.raises(FormatError, match=message):
        fastdata.open(path, label_field=field)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_that_are_not_labels_give_none(kind: str, tmp_path: Path) -> None:
    """Captions, descriptions and masks, as img2dataset and others write them."""
    texts = ["a cat", "2009", "a dog", "7", "text", "more"]
    about = described(caption=texts, similarity=[0.3] * COUNT, exif=['{"ImageDescription": "label"}'] * COUNT)
    entries = pairs("txt", texts) | pairs("json", about)
    sorted_ = {name: entries[name] for name in sorted(entries)}
    assert labels(write(tmp_path, kind, sorted_)) == [-1] * COUNT
    masks = pairs("label.png", [images.png(np.zeros((4, 4, 3), np.uint8))] * 2) | {"0.idx": b"0", "1.idx": b"1"}
    masks |= {"0.vector.npy": MASK, "1.vector.npy": MASK}
    assert labels(write(tmp_path, kind, {name: masks[name] for name in sorted(masks)}, "masks")) == [-1, -1]
    deep = pairs("json", ["[" * 100_000 + '"label"', '{"label": null}', "no json: label"])
    assert labels(write(tmp_path, kind, deep, "deep")) == [-1] * 3


def test_a_file_of_labels_beside_the_data_is_reported(tmp_path: Path) -> None:
    for kind, file in (("lmdb", tmp_path / "x.lmdb" / "labels.csv"), ("tar", tmp_path / "train_labels.json")):
        path = write(tmp_path, kind, {"a.jpg": JPEG, "b.jpg": JPEG})
        file.write_text("a,1")
        with pytest.raises(FormatError, match=rf"no record has a label, and {file.name!r} beside the data.*=''"):
            fastdata.open(path)
        assert labels(path, label_field="") == [-1, -1]
        labelled = write(tmp_path, kind, {"a.jpg": JPEG, "a.cls": b"3"}, "y")
        assert labels(labelled) == [3]


@pytest.mark.parametrize("name", ["d.lmdb", "d.h5", "d.tar", "d"])
def test_labels_of_ours_can_be_named_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with fastdata.create(path, format=None if "." in name else "tar") as writer:
        for number, label in enumerate(LABELS):
            about = json.dumps({"label": label + 5}).encode()
            writer.write(fastdata.Record(f"{number}", {"jpg": JPEG, "cls": b"%d" % label, "json": about}))
    assert labels(path) == labels(path, label_field="cls") == LABELS
    assert labels(path, label_field="json:label") == [label + 5 for label in LABELS]
    assert labels(path, label_field="") == [-1] * COUNT
    with pytest.raises(FormatError, match="6 records without the field 'txt'"):
        fastdata.open(path, label_field="txt")
