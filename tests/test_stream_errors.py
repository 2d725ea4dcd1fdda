"""ImageStream: what cannot be made is an error that names it, at its position, or replaced and listed."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata
from fastdata import DecodeError, ImageStream, LoadError, OptionError, Record, ResourceError
from tests import images
from tests.conftest import START_METHODS
from tests.test_stream import flat, load

COUNT = 24
DAMAGED = (3, 11, 12, 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data set whose labels are the records' numbers, in which some records are no whole images."""
    path = tmp_path / "set.lmdb"
    with fastdata.create(path) as writer:
        for i in range(COUNT):
            blob = images.png(images.photo(8, 8))[:40] if i in DAMAGED else images.png(images.photo(8, 8))
            writer.write(Record(f"{i:05}", {"png": blob, "cls": b"%d" % i}))
    return path


def skipping(path: Path, **options: Any) -> ImageStream:
    return ImageStream(path, **{"on_error": "skip", "shuffle": True, "batch_size": 5} | options)


def batches(source: Any) -> list[tuple[bytes, list[int]]]:
    return [(image.numpy().tobytes(), label.tolist()) for image, label in source]


def test_an_error_comes_where_its_sample_stands(path: Path) -> None:
    had = []
    with pytest.raises(DecodeError, match=r"set\.lmdb: record '00003': "):
        had.extend(label for _, label in ImageStream(path))
    taken = iter(ImageStream(path))
    assert [next(taken)[1] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DecodeError):
        next(taken)


@pytest.mark.parametrize("error", [StopIteration, ValueError, KeyError])
def test_what_a_transform_raises_names_data_set_and_key(path: Path, error: Any) -> None:
    def transform(array: Any) -> Any:
        raise error

    for options in ({}, {"batch_size": 2}):
        with pytest.raises(LoadError, match=r"set\.lmdb: record '00000': "):
            next(iter(ImageStream(path, transform=transform, **options)))


def test_skipping_keeps_sizes_and_names_what_was_replaced(path: Path) -> None:
    stream = skipping(path)
    first = batches(stream)
    assert [len(labels) for _, labels in first] == [5, 5, 5, 5, 4]
    assert len(stream) == 5
    assert not {label for _, labels in first for label in labels} & set(DAMAGED)
    assert {f"{i:05}" for i in DAMAGED} <= {key for key, _ in stream.skipped}
    assert all("set.lmdb" not in reason and reason for _, reason in stream.skipped)
    assert pickle.loads(pickle.dumps(stream)).skipped == []
    assert ImageStream(path).skipped == []


@pytest.mark.slow
@pytest.mark.parametrize("method", START_METHODS)
def test_replacements_and_their_list_are_the_same_for_any_workers(path: Path, method: str) -> None:
    transform = [fastdata.RandomResizedCrop(6), fastdata.RandomHorizontalFlip()]
    alone, shared = skipping(path, transform=transform), skipping(path, transform=transform)
    expected = batches(alone)
    assert batches(load(shared, 2, multiprocessing_context=method)) == expected
    assert sorted(shared.skipped) == sorted(alone.skipped) != []


def test_single_samples_are_replaced_too(path: Path) -> None:
    stream = ImageStream(path, on_error="skip")
    assert len(flat(stream)) == COUNT
    assert [label for label in flat(stream) if label in DAMAGED] == []


@pytest.mark.parametrize("error", [(OSError, errno.EMFILE, "Too many open files"), (MemoryError,)])
def test_a_machine_that_fails_is_not_damage(path: Path, error: Any) -> None:
    def transform(array: Any) -> Any:
        raise error[0](*error[1:])

    stream = skipping(path, transform=transform)
    with pytest.raises(ResourceError, match="says nothing about the data"):
        list(stream)


def test_too_many_in_a_row_are_an_error(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "set.h5") as writer:
        for i in range(4):
            writer.write(Record(f"{i}", {"png": b"\x89PNG\r\n\x1a\n" + bytes(40)}))
    with pytest.raises(LoadError, match=r"set\.h5: record '0': 32 records in a row failed, the last one '\d' \("):
        list(ImageStream(tmp_path / "set.h5", on_error="skip"))


def test_wrong_options_are_errors_all_the_same(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "set.h5") as writer:
        for i in range(4):
            writer.write(Record(f"{i}", {"png": images.png(images.photo(8 + i, 8))}))
    with pytest.raises(OptionError, match="different shapes"):
        list(ImageStream(tmp_path / "set.h5", on_error="skip", batch_size=2))
    with pytest.raises(OptionError, match="on_error must be 'raise' or 'skip'"):
        ImageStream(tmp_path / "set.h5", on_error="ignore")  # type: ignore[arg-type]


def test_padding_is_augmented_anew(tmp_path: Path) -> None:
    """The epoch's first sample comes again at its end, for the second of two ranks, and is drawn for anew."""
    with fastdata.create(tmp_path / "set.h5") as writer:
        for i in range(3):
            writer.write(Record(f"{i}", {"png": images.png(images.photo(64, 64)), "cls": b"%d" % i}))
    ranks = [
        list(ImageStream(tmp_path / "set.h5", transform=fastdata.RandomResizedCrop(16), rank=rank, world_size=2))
        for rank in range(2)
    ]
    (first, label), (again, same) = ranks[0][0], ranks[1][1]
    assert label == same == 0
    assert not np.array_equal(first, again)
    assert not torch.equal(torch.as_tensor(ranks[0][1][0]), torch.as_tensor(ranks[1][0][0]))
