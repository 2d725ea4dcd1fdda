"""The table of fields: what each entry promises, and that an entry is all that a new kind of value needs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata
from fastdata import FormatError, ImageDataset, ImageStream, OptionError, Record
from fastdata.converters.options import RecodeOptions
from fastdata.converters.recode import file_recoder
from fastdata.fields.base import Field
from fastdata.fields.plain import BytesField
from fastdata.fields.selection import ALWAYS
from fastdata.fields.table import FIELDS, field_of
from fastdata.formats import files
from fastdata.formats.folder import ImageRef
from fastdata.size import Size
from fastdata.transforms.plan import Plan
from tests import images
from tests.toy_field import PointField

PIXELS = images.photo(12, 8, seed=1)
# Of each entry: values that it holds, and what a batch of them is.
VALUES: dict[str, tuple[list[Any], Any]] = {
    "image": ([PIXELS, PIXELS[::-1].copy()], torch.from_numpy(np.stack([PIXELS, PIXELS[::-1]])).permute(0, 3, 1, 2)),
    "label": ([3, -1], torch.tensor([3, -1])),
    "text": (["a café", ""], ["a café", ""]),
    "annotation": ([{"boxes": [[1, 2.5, 3, 4]], "é": None}, []], [{"boxes": [[1, 2.5, 3, 4]], "é": None}, []]),
    "bytes": ([b"\0\xff", b""], [b"\0\xff", b""]),
}
BROKEN = {"image": b"no image", "label": b"three", "text": b"\xff\xfe", "annotation": b"{"}


def entry(name: str) -> Field[Any]:
    return BytesField() if name == "bytes" else FIELDS[name]


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


def test_every_entry_is_tested() -> None:
    assert set(VALUES) == {*FIELDS, "bytes"}


@pytest.mark.parametrize("name", VALUES)
def test_what_is_encoded_is_decoded_again(name: str) -> None:
    field = entry(name)
    for value in VALUES[name][0]:
        suffix, data = field.encode(value)
        assert suffix in field.suffixes or name == "bytes"
        for blob in (data, memoryview(data)):  # which is only right during the call
            decoded = field.decode(blob)
            assert type(decoded) is type(value)
            assert same(decoded, value)


@pytest.mark.parametrize("name", VALUES)
def test_geometry_moves_what_says_so_and_nothing_else(name: str) -> None:
    field, value = entry(name), VALUES[name][0][0]
    plan = Plan.whole(Size(8, 12)).flip(x=True)
    moved = field.make(field.encode(value)[1], plan)
    assert same(moved, value) != field.moves
    assert same(field.apply(value, plan), moved)
    assert same(field.make(field.encode(value)[1], None), value)


@pytest.mark.parametrize("name", VALUES)
def test_a_batch_of_values(name: str) -> None:
    field, (values, batch) = entry(name), VALUES[name]
    made = field.collate(values)
    assert type(made) is type(batch)
    assert torch.equal(made, batch) if isinstance(batch, torch.Tensor) else made == batch
    if not field.slot:
        assert len(field.collate([None, *values])) == len(values) + 1  # a record that lacks the field


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_hold_no_such_value_are_an_error_of_ours(name: str) -> None:
    with pytest.raises((FormatError, fastdata.DecodeError)):
        entry(name).decode(BROKEN[name])


@pytest.mark.parametrize("name", VALUES)
def test_fields_are_sent_to_workers(name: str) -> None:
    assert pickle.loads(pickle.dumps(entry(name))) == entry(name)


@pytest.mark.parametrize(
    ("record_name", "name"),
    [
        ("jpg", "image"), ("webp", "image"), ("npy", "image"), ("cls", "label"), ("txt", "text"),
        ("json", "annotation"), ("caption.txt", "text"), ("mask.png", ""), ("left.jpg", ""), ("extra.cls", ""),
        ("bin", ""), ("txt.gz", ""),
    ],
)  # fmt: skip
def test_names_of_record_fields(record_name: str, name: str) -> None:
    """A prefixed image is not the image of its record."""
    expected = FIELDS[name] if name else BytesField(record_name)
    assert field_of(record_name) == expected


def records() -> list[Record]:
    made = []
    for i in range(6):
        fields = {"jpg": images.jpeg(images.photo(32, 24, seed=i)), "cls": b"%d" % (i % 2)}
        if i != 4:
            fields |= {
                "txt": f"é{i}".encode(), "json": b'{"i": %d}' % i, "mask.png": b"mask%d" % i, "point": b"%d 3" % i,
            }  # fmt: skip
        made.append(Record(f"{'ab'[i % 2]}/{i}", fields))
    return made


@pytest.fixture
def path(tmp_path: Path) -> str:
    with fastdata.create(tmp_path / "d.lmdb", classes=["a", "b"]) as writer:
        for record in records():
            writer.write(record)
    return str(tmp_path / "d.lmdb")


NAMES = ("key", "text", "txt", "annotation", "json", "mask.png", "cls", "label", "index")
ROWS = [
    {
        "key": record.key, "txt": record.fields.get("txt"), "json": record.fields.get("json"),
        "mask.png": record.fields.get("mask.png"), "cls": record.fields["cls"], "label": record.label, "index": i,
        "text": None if i == 4 else f"é{i}", "annotation": None if i == 4 else {"i": i},
    }
    for i, record in enumerate(records())
]  # fmt: skip


def rows_of(batches: Any) -> list[dict[str, Any]]:
    """The samples of batches that are dicts."""
    rows = []
    for batch in batches:
        columns = {name: part.tolist() if isinstance(part, torch.Tensor) else part for name, part in batch.items()}
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows


CONSUMERS: dict[str, Any] = {
    "dataset": lambda data, **options: list(ImageDataset(data, **options)),
    "stream": lambda data, **options: list(ImageStream(data, **options)),
    "batched stream": lambda data, **options: rows_of(ImageStream(data, batch_size=4, **options)),
    "loader": lambda data, **options: rows_of(fastdata.DataLoader(data, 4, num_workers=0, **options)),
    "threads": lambda data, **options: rows_of(
        fastdata.DataLoader(data, 4, num_workers=2, worker_mode="thread", **options)
    ),
    "processes": lambda data, **options: rows_of(fastdata.DataLoader(data, 4, num_workers=2, **options)),
    "collate_fn": lambda data, **options: [
        row for batch in fastdata.DataLoader(data, 4, num_workers=0, collate_fn=list, **options) for row in batch
    ],
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("cache", [None, "ram"])
def test_fields_mean_the_same_in_every_class(path: str, consumer: str, cache: str | None) -> None:
    """A record's own name gives bytes, a field's name the decoded value, None stands for what a record lacks."""
    assert CONSUMERS[consumer](path, fields=NAMES, cache=cache) == ROWS
    with_image = CONSUMERS[consumer](path, fields=("mask.png", "image"), cache=cache, transform=fastdata.CenterCrop(8))
    assert [list(row) for row in with_image] == [["mask.png", "image"]] * len(ROWS)
    assert [row["mask.png"] for row in with_image] == [row["mask.png"] for row in ROWS]


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_new_entry_in_the_table_is_all_that_a_new_kind_needs(
    path: str, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read, decoded, moved with its image and batched, in workers too."""
    monkeypatch.setitem(FIELDS, "point", PointField())
    # The centre of 32 x 24 is cut out, and mirrored.
    transform = [fastdata.CenterCrop((24, 16)), fastdata.RandomHorizontalFlip(1)]
    rows = CONSUMERS[consumer](path, fields=("index", "point"), transform=transform)
    found = [None if row["point"] is None else tuple(row["point"]) for row in rows]
    assert found == [None if i == 4 else (16.0 - max(i - 8, 0), 3.0) for i in range(6)]


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_names_that_there_are_not_are_refused_with_those_that_there_are(path: str, consumer: str) -> None:
    for wrong in (("lable",), ("image", "seg.png")):
        with pytest.raises(
            OptionError, match=rf"each of fields must be 'image', 'label', .*'text', .*'mask\.png'.*, not '{wrong[-1]}'"
        ):
            CONSUMERS[consumer](path, fields=wrong)
    for wrong in ("image", (), (1,)):
        with pytest.raises(OptionError, match="fields must be a sequence of names"):
            CONSUMERS[consumer](path, fields=wrong)


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_field_that_cannot_be_decoded_names_its_record(tmp_path: Path, consumer: str) -> None:
    with fastdata.create(tmp_path / "d.tar") as writer:
        for key, text in (("a", b"fine"), ("b", b"\xff")):
            writer.write(Record(key, {"jpg": images.jpeg(PIXELS), "txt": text}))
    with pytest.raises(FormatError, match=r"d\.tar: record 'b': field 'txt': not text in UTF-8"):
        CONSUMERS[consumer](str(tmp_path / "d.tar"), fields=("text",))


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_without_fields_a_pair_of_image_and_default_target(path: str, consumer: str) -> None:
    with fastdata.open(path) as reader:
        assert reader.manifest.target == "label"
    options: dict[str, Any] = {"transform": fastdata.CenterCrop(8)}
    if consumer in ("loader", "threads", "processes", "batched stream"):
        made = fastdata.DataLoader(path, 6, num_workers=0, **options)
        images_, labels = next(
            iter(made if consumer != "batched stream" else ImageStream(path, batch_size=6, **options))
        )
        assert len(images_) == 6
        assert labels.tolist() == [0, 1] * 3
    else:
        assert [label for _, label in CONSUMERS[consumer](path, **options)] == [0, 1] * 3


def test_a_dataset_with_fields_brings_them_to_the_loader(path: str) -> None:
    data = ImageDataset(path, fields=("text", "index"))
    assert data.fields == ("text", "index")
    loader = fastdata.DataLoader(data, 6, num_workers=0)
    assert next(iter(loader))["text"] == [row["text"] for row in ROWS]
    assert loader.fields == loader.dataset.fields == ("text", "index")
    with pytest.raises(OptionError, match="leave one of the two out"):
        fastdata.DataLoader(data, 6, fields=("text",))


def test_the_names_in_samples_are_none_of_the_usual_names_of_record_fields() -> None:
    suffixes = {suffix for field in FIELDS.values() for suffix in field.suffixes}
    assert not suffixes & {*FIELDS, *ALWAYS}


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_the_parent_of_workers_reads_nothing(path: str, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    """Images and other fields are read where they are decoded, and nothing is read twice."""
    read = []
    fetch = files.DataFiles.read

    def counted(self: files.DataFiles, file: int, offset: int, size: int, scratch: Any = None) -> Any:
        read.append(size)
        return fetch(self, file, offset, size, scratch)

    monkeypatch.setattr(files.DataFiles, "read", counted)
    options: dict[str, Any] = {"transform": fastdata.CenterCrop(8), "num_workers": 2, "worker_mode": mode}
    images_of = [len(record.fields["jpg"]) for record in records()]
    masks = [len(record.fields["mask.png"]) for record in records() if "mask.png" in record.fields]
    with fastdata.DataLoader(path, 3, fields=("image", "mask.png"), **options) as loader:
        rows = rows_of(loader)
    assert [row["mask.png"] for row in rows] == [row["mask.png"] for row in ROWS]
    assert sorted(read) == (sorted(masks + images_of) if mode == "thread" else [])  # processes count for themselves


def test_conversion_takes_a_record_and_moves_what_moves_with_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reference names becomes a record; recoded, its fields are in the pixels of the new image."""
    monkeypatch.setitem(FIELDS, "point", PointField())
    (tmp_path / "a.png").write_bytes(images.png(images.photo(32, 24)))
    others = {"txt": b"words", "point": b"20 3", "left.point": b"1 2", "mask.png": b"kept"}
    for name, data in others.items():
        (tmp_path / f"a.{name}").write_bytes(data)
    ref = ImageRef("a", "a.png", 1, {name: f"a.{name}" for name in others})
    done, size = file_recoder(str(tmp_path), RecodeOptions(resize=12, encode="png"))(ref)
    assert done.record is not None
    assert list(done.record.fields) == ["png", *others, "cls"]
    moved = {"point": b"10.0 1.5", "left.point": b"0.5 1.0"}
    assert {name: done.record.fields[name] for name in others} == others | moved
    assert (done.record.key, done.record.path, done.record.label) == ("a", "a.png", 1)
    assert done.bytes_in == sum(map(len, others.values())) + (tmp_path / "a.png").stat().st_size
    assert size == done.nbytes == sum(map(len, done.record.fields.values()))
    kept = file_recoder(str(tmp_path), RecodeOptions(encode="keep"))(ref)[0]
    assert kept.record is not None
    assert {name: kept.record.fields[name] for name in others} == others
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        writer.write(done.record)
    sample = ImageDataset(str(tmp_path / "d.lmdb"), fields=("image", "point", "text"))[0]
    assert (sample["image"].shape, sample["point"].tolist(), sample["text"]) == ((12, 16, 3), [10.0, 1.5], "words")
