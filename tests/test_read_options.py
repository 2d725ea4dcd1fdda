"""How data are read is said by whoever opens them: checksums are compared, and the limit of pixels is the reader's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdata
from fastdata import Record
from fastdata.cache import CachedReader
from fastdata.formats.base import Reader
from tests import images, samples

COUNT = 6
CHANGED = 3


def damaged(folder: Path, layout: str, *, raw: bool = True) -> str:
    """A data set in which one byte of a raw image is another one: it decodes, but is not what was written."""
    pixels = [images.photo(24, 24, seed=number) for number in range(COUNT)]
    blobs = [images.npy(image) if raw else images.png(image) for image in pixels]
    records = [Record(f"k/{n}", {"npy" if raw else "png": blob, "cls": b"0"}) for n, blob in enumerate(blobs)]
    path = samples.write(folder, layout, records)
    middle = blobs[CHANGED][200:400]
    for file in [Path(path)] if Path(path).is_file() else sorted(Path(path).iterdir()):
        content = file.read_bytes()
        if middle in content:
            file.write_bytes(content.replace(middle, bytes([middle[0] ^ 1]) + middle[1:]))
            return path
    raise AssertionError("no file holds the image")


def dataset(path: str | Reader, **options: Any) -> None:
    with fastdata.ImageDataset(path, **options).reader as reader:
        data = fastdata.ImageDataset(reader, verify=options.get("verify", True))
        for number in range(COUNT):
            data[number]


def stream(path: str | Reader, **options: Any) -> None:
    list(fastdata.ImageStream(path, **options))


def loader(path: str | Reader, **options: Any) -> None:
    with fastdata.DataLoader(path, 2, num_workers=0, **options) as batches:
        list(batches)


def workers(path: str | Reader, **options: Any) -> None:
    with fastdata.DataLoader(path, 2, num_workers=2, **options) as batches:
        list(batches)


def fields(path: str | Reader, **options: Any) -> None:
    with fastdata.DataLoader(path, 2, num_workers=0, fields=("key", "npy"), **options) as batches:
        list(batches)


def cached(path: str, *, verify: bool = True) -> None:
    fastdata.ImageDataset(path, cache="ram", verify=verify).reader.close()


def opened(path: str, *, verify: bool = True) -> None:
    with fastdata.open(path, verify=verify) as plain, pickle.loads(pickle.dumps(plain)) as reader:
        for number in range(COUNT):
            reader[number]


WAYS: list[Callable[..., None]] = [dataset, stream, loader, workers, fields, cached, opened]


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_an_image_that_has_changed_since_it_was_written_is_an_error_by_name(layout: str, tmp_path: Path) -> None:
    path = damaged(tmp_path, layout)
    for way in WAYS:
        with pytest.raises(fastdata.FormatError, match=f"record 'k/{CHANGED}'.*changed since") as told:
            way(path)
        assert path in str(told.value), way
        way(path, verify=False)
    with fastdata.open(path) as reader:  # the bytes as they are, unless asked otherwise
        assert [len(reader[number].fields) for number in range(COUNT)] == [2] * COUNT


@pytest.mark.parametrize(
    "options", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"}]
)
def test_a_changed_image_is_skipped_and_listed_where_that_is_wanted(options: dict[str, Any], tmp_path: Path) -> None:
    path = damaged(tmp_path, "hdf5")
    with fastdata.DataLoader(path, 3, on_error="skip", **options) as batches:
        assert sum(len(labels) for _, labels in batches) == COUNT
    assert [key for key, _ in batches.skipped] == [f"k/{CHANGED}"]


def test_checksums_are_compared_through_shards_and_lists_too(tmp_path: Path) -> None:
    path = damaged(tmp_path, "shards")
    whole = samples.write(tmp_path, "tar", [Record("w", {"npy": images.npy(images.photo(24, 24, seed=9))})])
    shards = sorted(map(str, Path(path).glob("*.tar")))
    for way in (loader, workers, stream, dataset):
        with pytest.raises(fastdata.FormatError, match="changed since"):
            way([whole, *shards])
    with fastdata.open([whole, *shards], verify=True) as reader, pytest.raises(fastdata.FormatError, match="changed"):
        [reader[number] for number in range(len(reader))]


def write_with_limit(folder: Path, name: str, limit: int | None) -> str:
    path = str(folder / name)
    options = {} if limit is None else {"max_pixels": limit}
    with fastdata.create(path, options=options) as writer:
        writer.write(Record("k", {"png": images.png(np.zeros((40, 50, 3), np.uint8))}))
    return path


def ways(**options: Any) -> list[Callable[[Any], Any]]:
    crop = fastdata.CenterCrop(8)
    return [
        lambda path: fastdata.ImageDataset(path, crop, **options)[0],
        lambda path: next(iter(fastdata.ImageStream(path, transform=crop, **options))),
        lambda path: next(iter(fastdata.DataLoader(path, 1, transform=crop, num_workers=0, **options))),
        lambda path: fastdata.ImageDataset(fastdata.open(path, **options), crop)[0],
        lambda path: next(iter(fastdata.DataLoader(fastdata.ImageDataset(path, crop, **options), 1, num_workers=0))),
    ]


@pytest.mark.parametrize("stated", [None, 100, 10**12])
def test_the_reader_sets_the_limit_of_pixels_and_the_data_may_only_lower_it(stated: int | None, tmp_path: Path) -> None:
    path = write_with_limit(tmp_path, "d.lmdb", stated)
    for way in ways(max_pixels=1999):
        with pytest.raises(fastdata.TooLargeError, match="2,000 pixels"):
            way(path)
    for way in [*ways(), *ways(max_pixels=2000), *ways(max_pixels=10**9)]:
        if stated == 100:
            with pytest.raises(fastdata.TooLargeError, match="100 allowed"):
                way(path)
        else:
            way(path)


def test_a_set_of_a_list_does_not_raise_the_limit_of_the_others(tmp_path: Path) -> None:
    small, large = (write_with_limit(tmp_path, f"{limit}.tar", limit) for limit in (3000, 10**12))
    for way in ways(max_pixels=1999):
        for paths in ([small, large], [large, small]):
            with pytest.raises(fastdata.TooLargeError):
                way(paths)


@pytest.mark.parametrize(
    ("name", "value"), [("max_pixels", 0), ("max_pixels", True), ("max_pixels", "9"), ("image_field", 3), ("verify", 1)]
)
def test_options_that_cannot_be_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    path = write_with_limit(tmp_path, "d.tar", None)
    with pytest.raises(fastdata.OptionError, match=name):
        fastdata.open(path, **{name: value})
    with pytest.raises(fastdata.OptionError, match=name):
        fastdata.ImageDataset(path, **{name: value})
    with pytest.raises(fastdata.OptionError, match=name):
        fastdata.DataLoader(path, **{name: value})
    with fastdata.open(path) as reader, pytest.raises(fastdata.OptionError, match="too late"):
        fastdata.ImageDataset(reader, image_field="png")


@pytest.mark.parametrize("layout", samples.LAYOUTS)
@pytest.mark.parametrize("read", [dataset, stream, loader])
def test_labels_that_changed_in_the_index_are_not_trained_on(
    tmp_path: Path, layout: str, read: Callable[..., None]
) -> None:
    labels = [7001 + number for number in range(COUNT)]
    records = [Record(f"k/{n}", {"png": images.png(images.photo(8, 8)), "cls": b"%d" % n}) for n in labels]
    path = samples.write(tmp_path, layout, records, classes=())
    column, lying = (np.array(each, "<i8").tobytes() for each in (labels, labels[::-1]))
    for file in [Path(path)] if Path(path).is_file() else sorted(Path(path).iterdir()):
        file.write_bytes(file.read_bytes().replace(column, lying))
    assert list(fastdata.ImageDataset(path, verify=False).targets) == labels[::-1]
    with pytest.raises(fastdata.FormatError, match="the index has changed"):
        read(path)
    with fastdata.open(path) as reader, pytest.raises(fastdata.FormatError, match="the index has changed"):
        read(reader)
    with fastdata.open(path) as reader, pytest.raises(fastdata.FormatError, match="the index has changed"):
        CachedReader(reader)
    with fastdata.open(path) as reader:  # not compared where that was not asked for
        unverified = fastdata.ImageDataset(CachedReader(reader, verify=False), verify=False)
        fastdata.DataLoader(unverified, num_workers=0)
    if layout == "shards":
        with pytest.raises(fastdata.FormatError, match="the index has changed"):
            read(f"{path}/*.tar")
