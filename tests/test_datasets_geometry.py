"""Geometric transforms in the two data sets: only what they need is decoded, and their numbers are reproducible."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import fastdata
from fastdata import ImageDataset, ImageStream, RandomHorizontalFlip, RandomResizedCrop, Record, Resize
from fastdata.codec import jpeg
from fastdata.codec.decode import decode
from fastdata.codec.encode import encode
from fastdata.transforms import Pipeline
from tests import images

COUNT = 12
TRAIN = [RandomResizedCrop(40), RandomHorizontalFlip()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "set.h5"
    with fastdata.create(target, classes=["a", "b"]) as writer:
        for number in range(COUNT):
            blob = encode(images.photo(160 + 8 * number, 130, number), "jpg")
            writer.write(Record(f"{number:03}", {"jpg": blob, "cls": b"%d" % (number % 2)}))
    return target


def plus_one(image: Any) -> Any:
    return image + 1


def test_a_list_of_transforms_is_planned_and_called(path: Path) -> None:
    data = ImageDataset(path, transform=[*TRAIN, plus_one])
    random.seed(5)
    image, label = data[3]
    assert (image.shape, image.dtype, label) == ((40, 40, 3), np.uint8, 1)
    random.seed(5)
    pipeline = Pipeline(TRAIN)
    row = [random.random() for _ in range(pipeline.draws)]
    np.testing.assert_array_equal(image, pipeline.render(bytes(data.reader.image(3)[1]), row) + 1)


def test_only_a_part_is_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[Any] = []
    inner = jpeg.decode_logged

    def decode_logged(data: Any, scale: int = 1, *rest: Any) -> Any:
        out, log = inner(data, scale, *rest)
        assert out is not None
        shapes.append((scale, out.shape[0] < 130))
        return out, log

    monkeypatch.setattr(jpeg, "decode_logged", decode_logged)
    crop = RandomResizedCrop(8, scale=(0.05, 0.05))
    for exact in (False, True):
        assert ImageDataset(path, transform=crop, exact=exact)[0][0].shape == (8, 8, 3)
    assert [part for _, part in shapes] == [True, True]
    assert shapes[0][0] > 1
    assert shapes[1][0] == 1
    shapes.clear()
    full = ImageDataset(path)[0][0]
    assert shapes == [(1, False)]
    assert full.shape == (130, 160, 3)


def test_a_transform_that_is_set_later_counts(path: Path) -> None:
    data = ImageDataset(path)
    assert data[0][0].shape == (130, 160, 3)
    data.transform = Resize((20, 30))
    assert data[0][0].shape == (20, 30, 3)
    data.transform = None
    assert data[0][0].shape == (130, 160, 3)
    data.target_transform = lambda label: label + 10
    assert data[1][1] == 11


def test_the_fast_wheels_change_no_decoded_pixel(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ImageDataset(path)
    expected = [data[index][0] for index in range(COUNT)]
    monkeypatch.setattr(jpeg, "_simplejpeg", lambda: None)
    for index in range(COUNT):
        np.testing.assert_array_equal(data[index][0], expected[index])
        np.testing.assert_array_equal(decode(data.reader.image(index)[1]), expected[index])


def test_a_plain_data_loader_batches_them(path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(ImageDataset(path, transform=TRAIN), batch_size=5)
    shapes = [tuple(batch.shape) for batch, _ in loader]
    assert shapes == [(5, 40, 40, 3), (5, 40, 40, 3), (2, 40, 40, 3)]


@pytest.mark.parametrize("workers", [0, 3])
def test_a_stream_draws_the_same_in_any_worker(path: Path, workers: int) -> None:
    def batches(workers: int) -> list[torch.Tensor]:
        stream = ImageStream(path, transform=TRAIN, shuffle=True, seed=7, batch_size=4)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        loader: DataLoader[Any] = DataLoader(stream, batch_size=None, num_workers=workers, **options)
        return [batch for _ in range(2) for batch, _ in loader]

    expected, got = batches(0), batches(workers)
    assert len(got) == 6
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(got[:3], got[3:], strict=True))


def test_a_torch_module_may_follow(path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Identity())
    image, _ = ImageDataset(path, transform=[Resize(32), module])[0]
    assert image.shape == (32, 39, 3)  # a plain module gets the array, as any callable does
