"""ImageStream: the same samples for any format, workers and ranks; epochs that count themselves."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader

import fastdata
from fastdata import ImageStream, OptionError, Record
from fastdata.datasets import stream as stream_module
from tests import images
from tests.test_datasets import FORMATS, make
from tests.test_datasets_workers import LOADERS

COUNT = 23
IMAGE = images.bmp(np.zeros((2, 2, 3), np.uint8))


def numbered(path: Path, count: int = COUNT, **kind: Any) -> Path:
    """A data set whose labels are the records' numbers."""
    with fastdata.create(path, **kind) as writer:
        for i in range(count):
            writer.write(Record(f"{i:05}", {"bmp": IMAGE, "cls": b"%d" % i}))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return numbered(tmp_path / "set.h5")


def labels(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


def order(batches: Any) -> list[int]:
    return [number for batch in labels(batches) for number in batch]


def flat(samples: Any) -> list[int]:
    return [int(label) for _, label in samples]


def load(stream: ImageStream, workers: int = 0, **options: Any) -> DataLoader[Any]:
    if workers:
        options = {"multiprocessing_context": "fork"} | options
    return DataLoader(stream, batch_size=None, num_workers=workers, **options)


# What an epoch holds


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 3, 7])
def test_each_sample_once(path: Path, workers: int, shuffle: bool) -> None:
    stream = ImageStream(path, shuffle=shuffle, buffer_size=8)
    assert len(stream) == COUNT
    assert sorted(flat(load(stream, workers))) == list(range(COUNT))
    batched = DataLoader(stream, batch_size=4, num_workers=workers, multiprocessing_context="fork" if workers else None)
    assert len(batched) == 6
    assert sorted(order(batched)) == list(range(COUNT))


def test_without_shuffle_records_come_in_order(path: Path) -> None:
    assert flat(ImageStream(path)) == list(range(COUNT))
    assert labels(ImageStream(path, batch_size=10)) == [list(range(10)), list(range(10, 20)), [20, 21, 22]]
    assert labels(ImageStream(path, batch_size=10, drop_last=True)) == [list(range(10)), list(range(10, 20))]


def test_batches_are_tensors(path: Path) -> None:
    batch, numbers = next(iter(ImageStream(path, batch_size=4)))
    assert (batch.dtype, tuple(batch.shape)) == (torch.uint8, (4, 2, 2, 3))
    assert (numbers.dtype, tuple(numbers.shape)) == (torch.int64, (4,))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "workers"), LOADERS)
def test_batches_are_bit_identical_for_any_workers_and_format(tmp_path: Path, method: str | None, workers: int) -> None:
    """All formats in one loader, after the parent has read; each format's batches are those of the first."""
    paths = [make(tmp_path, name, COUNT) for name in FORMATS]
    expected = list(ImageStream(paths[0], shuffle=True, seed=5, batch_size=4))
    for part in paths:
        alone = list(ImageStream(part, shuffle=True, seed=5, batch_size=4))
        assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(alone, expected, strict=True))
    streams = [ImageStream(part, shuffle=True, seed=5, batch_size=4) for part in paths]
    loader = load(ChainDataset(streams), workers, multiprocessing_context=method)  # type: ignore[arg-type]
    seen = Counter((image.numpy().tobytes(), tuple(label.tolist())) for image, label in loader)
    assert seen == Counter({(image.numpy().tobytes(), tuple(label.tolist())): len(paths) for image, label in expected})


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 9])
def test_batches_come_in_order_for_any_workers(path: Path, workers: int) -> None:
    stream = ImageStream(path, shuffle=True, batch_size=3)
    assert len(load(stream)) == 8
    assert labels(load(stream, workers)) == labels(ImageStream(path, shuffle=True, batch_size=3))


def test_reading_ahead_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = labels(ImageStream(path, shuffle=True, batch_size=3))
    monkeypatch.setattr(stream_module, "_AHEAD_BYTES", 3 * len(IMAGE))
    assert labels(ImageStream(path, shuffle=True, batch_size=3)) == expected
    monkeypatch.setattr(stream_module, "_PLAIN_LOT", 1)
    assert flat(ImageStream(path)) == list(range(COUNT))


def test_transforms_are_called(path: Path) -> None:
    assert next(iter(ImageStream(path, transform=np.shape))) == ((2, 2, 3), 0)
    assert next(iter(ImageStream(path, transform=np.ravel, batch_size=5)))[0].shape == (5, 12)


def test_different_sizes_in_a_batch_are_explained(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "set.h5") as writer:
        for i in range(3):
            writer.write(Record(str(i), {"jpg": images.jpeg(images.photo(20 + i, 16))}))
    assert len(list(ImageStream(tmp_path / "set.h5"))) == 3
    with pytest.raises(OptionError, match=r"\(16, 20, 3\), \(16, 21, 3\).*--resize-mode crop"):
        next(iter(ImageStream(tmp_path / "set.h5", batch_size=2)))


# Ranks


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Three tars of others, without an index, of 10, 10 and 3 samples."""
    names = []
    number = 0
    for shard, count in enumerate((10, 10, 3)):
        names.append(str(tmp_path / f"foreign-{shard}.tar"))
        with tarfile.open(names[-1], "w") as tar:
            for _ in range(count):
                for field, blob in (("bmp", IMAGE), ("cls", b"%d" % number)):
                    info = tarfile.TarInfo(f"{number:05}.{field}")
                    info.size = len(blob)
                    tar.addfile(info, io.BytesIO(blob))
                number += 1
    return names


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("options", [{}, {"even": "cut"}, {"drop_last": True}])
def test_ranks_get_equally_much(shards: list[str], size: int, workers: int, options: dict[str, Any]) -> None:
    for batch_size in (None, 2) if "drop_last" not in options else (2,):
        ranks = [
            ImageStream(shards, rank=rank, world_size=size, batch_size=batch_size, shuffle=True, **options)
            for rank in range(size)
        ]
        epochs = [list(load(stream, workers)) for stream in ranks]
        assert len({len(epoch) for epoch in epochs}) == 1
        assert epochs[0]
        seen = Counter(n for epoch in epochs for n in (order(epoch) if batch_size else flat(epoch)))
        if not options:
            assert sum(seen.values()) == -(-23 // size) * size  # each once, and the epoch's first ones again
            assert set(seen) == set(range(23))
            assert max(seen.values()) <= 2
        else:
            whole = size * 2 if "drop_last" in options else size
            assert sum(seen.values()) == len(seen) == 23 // whole * whole


def test_the_union_of_the_ranks_is_the_same_for_any_world_size(path: Path) -> None:
    single = labels(ImageStream(path, shuffle=True, seed=2, batch_size=8))
    for size in (2, 4):
        ranks = [
            labels(ImageStream(path, shuffle=True, seed=2, batch_size=8 // size, rank=rank, world_size=size))
            for rank in range(size)
        ]
        for k, batch in enumerate(single):
            assert [n for rank in ranks for n in rank[k]][: len(batch)] == batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0, "world_size": 40, "even": "cut"}, '23 samples for 40 ranks .* even="cut"'),
        ({"pad": False, "even": "cut"}, "leave out one of the two"),
        ({"batch_size": 24, "drop_last": True}, "23 samples for 1 ranks, batch_size 24 .* drop_last=True"),
        ({"rank": 0, "world_size": 2, "batch_size": 12, "drop_last": True}, "for 2 ranks, batch_size 12"),
        ({"drop_last": True}, "needs a batch_size"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, not 0"),
        ({"buffer_size": 1.5}, "buffer_size must be an integer of at least 1, not 1.5"),
        ({"seed": "x"}, "must be an integer"),
        ({"rank": 2, "world_size": 2}, "rank must be"),
        ({"rank": 0}, "together"),
        ({"transform": 1}, "must be callable"),
        ({"shuffle": "no"}, "shuffle must be True or False, not 'no'"),
        ({"pad": 1}, "pad must be True or False"),
        ({"drop_last": None, "batch_size": 4}, "drop_last must be True or False"),
        ({"skip_shards": "no"}, "skip_shards must be True or False"),
        ({"exact": 0}, "exact must be True or False"),
        ({"progress": "no"}, "progress must be True or False"),
    ],
)
def test_options_that_cannot_be_used_are_refused_when_it_is_made(
    path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        ImageStream(path, **options)


def test_small_sets_are_padded_for_many_ranks(path: Path) -> None:
    epochs = [flat(ImageStream(path, rank=rank, world_size=50)) for rank in range(50)]
    assert epochs == [[rank % COUNT] for rank in range(50)]


def test_an_empty_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no samples"):
        ImageStream(numbered(tmp_path / "none.h5", 0))


def test_ranks_come_from_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    stream = ImageStream(path)
    assert (len(stream), flat(stream)) == (12, [*range(12, 23), 0])
    assert flat(load(stream, 2)) == [12, 18, 13, 19, 14, 20, 15, 21, 16, 22, 17, 0]


@pytest.mark.slow
def test_spawned_workers_know_the_process_groups_rank(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is known to the main process only; spawn gives workers nothing of it but the stream."""
    for module in ("fastdata.world", "fastdata.datasets.stream"):
        monkeypatch.setattr(f"{module}.distributed_ranks", lambda: (1, 2))
    stream = ImageStream(path)
    assert flat(load(stream, 1, multiprocessing_context="spawn")) == [*range(12, 23), 0]


# Lengths and names


def test_foreign_tars_have_no_length_but_an_exact_split(shards: list[str]) -> None:
    stream = ImageStream(shards, batch_size=5)
    with pytest.raises(TypeError, match="without a fastdata index"):
        len(stream)
    with pytest.raises(TypeError):
        len(load(stream))
    assert sorted(order(load(stream, 3))) == list(range(23))


def test_shards_by_list_glob_and_braces(tmp_path: Path, shards: list[str]) -> None:
    for name in (shards, str(tmp_path / "foreign-*.tar"), str(tmp_path / "foreign-{0..2}.tar")):
        assert flat(ImageStream(name)) == list(range(23))
    ours = numbered(tmp_path / "ours", format="tar", shard_size=20_000)
    names = sorted(str(name) for name in ours.glob("*.tar"))
    assert len(names) > 1
    stream = ImageStream(names)
    assert (len(stream), flat(stream)) == (COUNT, list(range(COUNT)))
    assert flat(ImageStream(names[:1])) == list(range(len(ImageStream(names[:1]))))


def test_it_takes_a_reader_and_repr_shows_its_options(path: Path) -> None:
    with fastdata.open(path) as reader:
        stream = ImageStream(reader, shuffle=True, batch_size=4)
        assert len(stream) == 6
        assert stream.classes == []
        assert "23 samples, shuffle=True, seed=0, batch_size=4" in repr(stream)


def test_a_transform_and_a_form_that_are_set_later_count_and_what_would_not_is_refused(shards: list[str]) -> None:
    stream = ImageStream(shards)
    stream.transform, stream.form = (lambda image: (type(image).__name__, image.size)), "pil"
    assert next(iter(stream))[0][0] == "Image"
    stream.transform = None
    assert next(iter(stream))[0].mode == "RGB"
    for name in ("reader", "on_error"):
        with pytest.raises(AttributeError, match=name):
            setattr(stream, name, None)
    with pytest.raises(AttributeError, match="reader"):
        fastdata.ImageDataset(stream.reader).reader = stream.reader  # type: ignore[misc]
