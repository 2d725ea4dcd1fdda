"""What samples hold beside their images: made whole by the loader's workers, in every mode alike."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fastdata
from fastdata import DataLoader, FormatError, ImageDataset, LoadError, Record
from fastdata.fields.table import FIELDS
from fastdata.formats import files
from fastdata.formats.locations import NO_FILE
from fastdata.formats.locator import BlobLocator
from fastdata.formats.packed import PackedReader
from fastdata.loader.batch_locations import BatchLocations
from fastdata.loader.passes import Pass, Passes
from fastdata.loader.sample_log import SampleLog, wanted_samples
from tests import images, loader_targets
from tests.toy_field import PointField

COUNT = 40
WORKERS: list[dict[str, Any]] = [
    {"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"},
    {"num_workers": 1, "multiprocessing_context": "spawn"},
]  # fmt: skip
IDS = ["caller", "fork", "threads", "spawn"]
MODES = pytest.mark.parametrize("workers", WORKERS, ids=IDS)
# Images of two sizes, alternately, with a crop index and without one; all are cut and mirrored at random.
GEOMETRY = [fastdata.CenterCrop((16, 24)), fastdata.RandomHorizontalFlip(0.5), fastdata.RandomVerticalFlip(0.5)]


def marked(number: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """An image, and the (x, y) of the one bright pixel that is in it."""
    width, height = (48, 32) if number % 2 else (32, 24)
    x, y = width // 2 - 10 + number % 20, height // 2 - 5 + number % 10
    image = np.zeros((height, width, 3), np.uint8)
    image[y, x] = 255
    return image, (x, y)


def record(number: int) -> Record:
    image, (x, y) = marked(number)
    fields = {"png": images.png(image), "cls": b"%d" % (number % 4), "mask.png": b"mask%d" % number}
    if number != 5:
        fields |= {"txt": b"text%d" % number, "point": b"%r %r" % (x + 0.5, y + 0.5)}
    return Record(f"k/{number}", fields)


@pytest.fixture
def path(tmp_path: Path) -> str:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        for number in range(COUNT):
            writer.write(record(number))
    return str(tmp_path / "d.lmdb")


@pytest.fixture
def _points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIELDS, "point", PointField())


def brightest(image: Any) -> tuple[int, int]:
    """The (x, y) of the bright pixel of a C x H x W image."""
    y, x = np.unravel_index(int(image[0].argmax()), image[0].shape)
    return int(x), int(y)


def pixel_of(point: tuple[float, float] | NDArray[np.float64]) -> tuple[int, int]:
    return int(point[0]), int(point[1])


@pytest.mark.usefixtures("_points")
@MODES
@pytest.mark.parametrize("callables", [False, True])
def test_what_moves_goes_where_its_image_goes(path: str, workers: dict[str, Any], callables: bool) -> None:
    """With the same numbers, in every view; what a record lacks is None."""
    transform: list[Any] = [*GEOMETRY, loader_targets.mirrored, loader_targets.mirrored] if callables else GEOMETRY
    options = {"fields": ("index", "point", "image"), "transform": transform, "seed": 3, "repeats": 2, **workers}
    mirrored = set()
    with DataLoader(path, 16, views=2, shuffle=True, **options) as loader:
        for batch in loader:
            assert [len(column) for column in batch["point"]] == [len(batch["index"])] * 2
            for view in range(2):
                for number, point, image in zip(
                    batch["index"].tolist(), batch["point"][view], batch["image"][view], strict=True
                ):
                    assert (point is None) == (number == 5)
                    assert point is None or pixel_of(point) == brightest(image)
                    mirrored.add((number, view, point))
    assert len(mirrored) > 2 * COUNT  # copies and views draw numbers of their own
    with DataLoader(path, 16, collate_fn=list, **options) as loader:
        rows = [row for batch in loader for row in batch]
    assert all(row["point"] is None or pixel_of(row["point"]) == brightest(row["image"]) for row in rows)
    with DataLoader(path, None, views=2, **options) as loader:
        one = next(iter(loader))
    assert [pixel_of(point) for point in one["point"]] == [brightest(image) for image in one["image"]]


@pytest.mark.usefixtures("_points")
@MODES
def test_what_moves_moves_without_its_image(path: str, workers: dict[str, Any]) -> None:
    transform = [fastdata.CenterCrop((16, 24)), fastdata.RandomHorizontalFlip(1)]
    data = ImageDataset(path, fields=("point", "label"), transform=transform)
    expected = [(None if row["point"] is None else tuple(row["point"]), row["label"]) for row in data]
    with DataLoader(path, 7, fields=("point", "label"), transform=transform, **workers) as loader:
        made = [pair for batch in loader for pair in zip(batch["point"], batch["label"].tolist(), strict=True)]
    assert made == expected


@MODES
@pytest.mark.parametrize("fields", [None, ("label", "text")])
def test_a_target_transform_is_called_by_the_worker(path: str, workers: dict[str, Any], fields: Any) -> None:
    data = ImageDataset(path, GEOMETRY, target_transform=loader_targets.label_and_pid, fields=fields)
    with DataLoader(data, 8, **workers) as loader:
        labels = [pair for batch in loader for pair in (batch[1] if fields is None else batch["label"])]
    assert [label for label, _ in labels] == [number % 4 for number in range(COUNT)]
    here = "worker_mode" in workers or not workers["num_workers"]
    assert all((pid == os.getpid()) == here for _, pid in labels)


@MODES
def test_an_error_of_a_target_transform_names_record_and_function(path: str, workers: dict[str, Any]) -> None:
    data = ImageDataset(path, GEOMETRY, target_transform=loader_targets.even_only)
    with DataLoader(data, 1, **workers) as loader:
        batches = iter(loader)
        assert next(batches)[1].tolist() == [0]
        with pytest.raises(LoadError, match=r"d\.lmdb: record 'k/1': target_transform: ValueError: this label is odd"):
            next(batches)
    with DataLoader(data, 8, on_error="skip", **workers) as loader:
        assert {label for _, labels in loader for label in labels.tolist()} == {0, 1}
        assert {key for key, _ in loader.skipped} >= {f"k/{number}" for number in range(1, COUNT, 2)}


@pytest.mark.slow
def test_targets_draw_the_same_numbers_however_they_are_made(path: str) -> None:
    data = ImageDataset(path, GEOMETRY, target_transform=loader_targets.drawn_label)
    made = []
    for workers in WORKERS:
        random.seed(7)
        with DataLoader(data, 16, shuffle=True, seed=3, repeats=2, **workers) as loader:
            made.append(torch.cat([labels for _, labels in loader]))
        assert random.random() == random.Random(7).random()  # nothing is drawn from the program's own generators
    assert len(set(made[0].tolist())) == 2 * COUNT
    assert all(torch.equal(other, made[0]) for other in made[1:])


def test_a_label_that_cannot_be_sent_is_told(path: str) -> None:
    data = ImageDataset(path, GEOMETRY, target_transform=loader_targets.unsendable_label)
    with (
        DataLoader(data, 4, num_workers=1) as loader,
        pytest.raises(fastdata.OptionError, match="target_transform returned what cannot be sent to the main process"),
    ):
        list(loader)


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Record 3 has a changed mask, 21 a text that is none, and 30 an image that is none."""
    with fastdata.create(tmp_path / "d.tar") as writer:
        for number in range(COUNT):
            changed = {21: {"txt": b"\xff"}, 30: {"png": b"no image"}}.get(number, {})
            writer.write(Record(f"k/{number}", record(number).fields | changed))
    path = next(tmp_path.glob("d.tar*")) if not (tmp_path / "d.tar").is_file() else tmp_path / "d.tar"
    blob = path.read_bytes()
    assert blob.count(b"mask3\0") == 1
    path.write_bytes(blob.replace(b"mask3\0", b"MASK3\0"))
    return str(path)


BAD = {
    3: "field 'mask.png': the data have changed",
    21: "field 'txt': not text in UTF-8",
    30: "not an image of a known kind: the data begin with b'no image'",
}


@pytest.mark.slow
@MODES
@pytest.mark.parametrize(
    ("fields", "options"),
    [
        (("key", "text", "mask.png"), {}), (("image", "key", "text", "mask.png"), {"transform": GEOMETRY}),
        (("image", "key", "text", "mask.png"), {"transform": [*GEOMETRY, loader_targets.mirrored]}),
        (("image", "key", "text", "mask.png"), {"transform": GEOMETRY, "collate_fn": loader_targets.by_name}),
    ],
    ids=["values", "pixels", "callables", "collate_fn"],
)  # fmt: skip
def test_damage_of_any_field_is_damage_of_the_sample(
    damaged: str, workers: dict[str, Any], fields: tuple[str, ...], options: dict[str, Any]
) -> None:
    bad = BAD if "image" in fields else {number: BAD[number] for number in (3, 21)}
    with (
        DataLoader(damaged, COUNT, fields=fields, **options, **workers) as loader,
        pytest.raises(FormatError, match=rf"{damaged}: record 'k/3': {BAD[3]}"),  # the first one in the batch
    ):
        list(loader)
    with DataLoader(damaged, 8, fields=fields, on_error="skip", seed=5, **options, **workers) as loader:
        rows = [row for batch in loader for row in zip(batch["key"], batch["text"], batch["mask.png"], strict=True)]
        assert [int(key[2:]) for key, _ in loader.skipped] == sorted(bad)
        assert [reason for key, reason in loader.skipped if bad[int(key[2:])] not in reason] == []
    assert len(rows) == COUNT
    for position, (key, text, mask) in enumerate(rows):  # whole samples, also those in the place of others
        number = int(key[2:])
        assert number not in bad
        assert (number == position) == (position not in bad)
        assert (text, mask) == (None if number == 5 else f"text{number}", b"mask%d" % number)


def test_without_verify_no_checksum_of_a_field_is_compared(damaged: str) -> None:
    with DataLoader(damaged, COUNT, fields=("mask.png",), verify=False, num_workers=2) as loader:
        assert next(iter(loader))["mask.png"][3] == b"MASK3"


@pytest.mark.parametrize("workers", [0, 2])
def test_the_reader_says_why_a_field_has_no_location(path: str, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    located = BlobLocator.locations

    def locations(self: BlobLocator, indices: Any, name: str | None = None) -> Any:
        found = located(self, indices, name)
        if name == "txt":
            found[found[:, 0] == 9, 1] = NO_FILE
        return found

    def blob(self: PackedReader, index: int, field: str, *, verify: bool) -> bytes:
        raise FormatError(f"{self.path}: record {self.keys[index]!r}: the index lies about {field!r}")

    monkeypatch.setattr(BlobLocator, "locations", locations)
    monkeypatch.setattr(PackedReader, "blob", blob)
    with (
        DataLoader(path, COUNT, fields=("image", "text"), transform=GEOMETRY, num_workers=workers) as loader,
        pytest.raises(FormatError, match=r"d\.lmdb: record 'k/9': the index lies about 'txt'"),
    ):
        list(loader)


def test_decoders_say_nothing_of_samples_that_fail() -> None:
    log = SampleLog(skip=True, in_worker=True)
    one, other = wanted_samples(np.zeros((2, 6), np.int64), [4, 7])
    log.remark(one, ["cut"])
    log.remark(other, ["odd"])
    log.failed(one, ValueError("no text"))
    made = log.made()
    assert [failure.row for failure in made.failures] == [4]
    assert made.remarks == [(7, 0, "odd")]


def test_what_stands_in_the_index_needs_no_workers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("fastdata.loader.executor_pool.ProcessExecutor", refused)
    data = ImageDataset(path, target_transform=loader_targets.label_and_pid, fields=("key", "index"))
    for given in (data, path):
        options: dict[str, Any] = {} if given is data else {"fields": ("label", "key", "index")}
        with DataLoader(given, 4, num_workers=2, **options) as loader:
            assert sum(len(batch["key"]) for batch in loader) == COUNT


@pytest.mark.usefixtures("_points")
def test_an_image_is_read_once_for_its_pixels_and_for_what_moves_with_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    fetch = files.DataFiles.read

    def counted(self: files.DataFiles, file: int, offset: int, size: int, scratch: Any = None) -> Any:
        read.append((file, offset))
        return fetch(self, file, offset, size, scratch)

    monkeypatch.setattr(files.DataFiles, "read", counted)
    with DataLoader(path, 8, fields=("image", "point"), transform=GEOMETRY, num_workers=0) as loader:
        list(loader)
    assert len(read) == len(set(read)) == 2 * COUNT - 1  # one record has no point


def test_rows_hold_nothing_that_is_not_wanted(path: str) -> None:
    """The record, the location of its image and its occurrence; four numbers more for each field, one for a label."""
    for fields, target, columns in (
        (("image", "label", "key", "index"), None, 6),
        (("image", "text"), None, 10),
        (("text", "mask.png", "label"), loader_targets.even_only, 15),
        (("text", "key"), loader_targets.even_only, 10),
    ):
        with DataLoader(ImageDataset(path, fields=fields, target_transform=target), 4, num_workers=0) as loader:
            spec, settings = loader._spec, loader._settings
            course = Pass(Passes(), loader._schedule)
            course.begin()
            assert spec.columns == columns
            assert BatchLocations(settings, loader.reader, spec, course).next().shape == (4, columns)  # type: ignore[union-attr]
