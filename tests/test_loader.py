"""fastdata.DataLoader: the same batches, bit for bit, whatever makes them; and what a consumer may do with them."""

from __future__ import annotations

import gc
import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata
from fastdata.codec.encode import encode
from tests import images, loader_targets

COUNT = 46
SIZE = 24
AUGMENT = [fastdata.RandomResizedCrop(SIZE), fastdata.RandomHorizontalFlip()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(tmp_path_factory.mktemp("data"))


def written(folder: Path) -> dict[str, str]:
    """The same records in every format: images of various sizes, three classes."""
    records = []
    for i in range(COUNT):
        image = images.photo(60 + i % 7 * 9, 50 + i % 5 * 11, seed=i)
        fields = {"jpg": encode(image, "jpg"), "cls": b"%d" % (i % 3), "json": b'{"i": %d}' % i}
        records.append(fastdata.Record(f"{'abc'[i % 3]}/{i}", fields))
    places = {"lmdb": "d.lmdb", "hdf5": "d.h5", "tar": "d.tar"}
    for place in places.values():
        with fastdata.create(folder / place, classes=["a", "b", "c"]) as writer:
            for record in records:
                writer.write(record)
    return {name: str(folder / place) for name, place in places.items()}


def digest(batch: Any) -> str:
    parts = batch.values() if isinstance(batch, dict) else batch
    blobs = [np.ascontiguousarray(p.float().numpy() if p.dtype == torch.bfloat16 else p.numpy()) for p in parts]
    return hashlib.sha256(b"".join(blob.tobytes() for blob in blobs)).hexdigest()


def pixels_of(view: Any) -> Any:
    return view.numpy() if isinstance(view, torch.Tensor) else view


def epochs(path: str, count: int = 2, **options: Any) -> list[list[str]]:
    options = {"batch_size": 8, "shuffle": True, "seed": 7, "transform": AUGMENT, "num_workers": 0} | options
    with fastdata.DataLoader(path, **options) as loader:
        return [[digest(batch) for batch in loader] for _ in range(count)]


@pytest.fixture(scope="module")
def reference(data: dict[str, str]) -> list[list[str]]:
    return epochs(data["lmdb"])


def test_batches_are_channels_last_images_and_labels(data: dict[str, str]) -> None:
    with fastdata.DataLoader(data["lmdb"], 8, transform=AUGMENT, num_workers=1) as loader:
        images, labels = next(iter(loader))
    assert images.shape == (8, 3, SIZE, SIZE)
    assert images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_epochs_differ_and_seeds_differ(data: dict[str, str], reference: list[list[str]]) -> None:
    assert len(reference[0]) == 6
    assert not set(reference[0]) & set(reference[1])
    assert not set(epochs(data["lmdb"], 1, seed=8)[0]) & set(reference[0])


@pytest.mark.parametrize("name", ["hdf5", "tar"])
def test_every_format_gives_the_same_batches(data: dict[str, str], reference: list[list[str]], name: str) -> None:
    assert epochs(data[name], num_workers=1) == reference


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_batches(
    data: dict[str, str], reference: list[list[str]], workers: int
) -> None:
    assert epochs(data["lmdb"], num_workers=workers) == reference


def test_every_start_method_gives_the_same_batches(
    data: dict[str, str], reference: list[list[str]], start_method: str
) -> None:
    assert epochs(data["tar"], num_workers=2, multiprocessing_context=start_method) == reference


@pytest.mark.parametrize(
    "options",
    [
        {"worker_mode": "thread", "num_workers": 2},
        {"num_workers": 2, "persistent_workers": False, "prefetch_factor": 1},
        {"cache": "ram", "num_workers": 2},
        {"cache": "ram", "num_workers": 1, "multiprocessing_context": "spawn"},
    ],
)
def test_neither_mode_nor_cache_changes_the_batches(
    data: dict[str, str], reference: list[list[str]], options: dict[str, Any]
) -> None:
    assert epochs(data["hdf5"], **options) == reference


@pytest.mark.parametrize("world_size", [2, 4])
def test_the_ranks_share_the_same_global_batches(data: dict[str, str], world_size: int) -> None:
    def global_batches(size: int) -> list[set[tuple[int, bytes]]]:
        loaders = [
            fastdata.DataLoader(
                data["lmdb"], 16 // size, shuffle=True, transform=AUGMENT, num_workers=0, rank=rank, world_size=size,
                fields=("index", "image"), drop_last=True,
            )
            for rank in range(size)
        ]  # fmt: skip
        return [
            {(int(i), p.numpy().tobytes()) for part in parts for i, p in zip(part["index"], part["image"], strict=True)}
            for _ in range(2)  # epochs
            for parts in zip(*loaders, strict=True)
        ]

    alone = global_batches(1)
    assert len(alone) == 2 * (len(alone) // 2)
    assert not alone[0] & alone[len(alone) // 2]
    assert global_batches(world_size) == alone


def test_the_ranks_of_a_batch_side_by_side_are_the_reference(data: dict[str, str], reference: list[list[str]]) -> None:
    """By hash, over two epochs: rank r has the r-th block of each global batch, whatever its workers and its format."""
    options: dict[str, Any] = {"shuffle": True, "transform": AUGMENT, "seed": 7, "world_size": 2}
    with (
        fastdata.DataLoader(data["lmdb"], 4, rank=0, num_workers=2, **options) as first,
        fastdata.DataLoader(data["hdf5"], 4, rank=1, num_workers=0, **options) as second,
    ):
        for epoch in reference:
            found = [
                digest([torch.cat(pair) for pair in zip(*parts, strict=True)])
                for parts in zip(first, second, strict=True)
            ]
            assert found[:-1] == epoch[:-1]  # the last one is filled up to a multiple of the ranks


def test_without_drop_last_the_ranks_are_filled_up_with_the_first_samples(data: dict[str, str]) -> None:
    loaders = [
        fastdata.DataLoader(
            data["lmdb"], 5, shuffle=True, num_workers=0, transform=AUGMENT, rank=r, world_size=4, fields=("index",)
        )
        for r in range(4)
    ]
    taken = [[batch["index"].tolist() for batch in loader] for loader in loaders]
    assert [len(loader) for loader in loaders] == [3] * 4
    assert [[len(batch) for batch in batches] for batches in taken] == [[5, 5, 2]] * 4
    order = [i for batch in zip(*taken, strict=True) for part in batch for i in part]
    assert sorted(order[:COUNT]) == list(range(COUNT))
    assert order[COUNT:] == order[: len(order) - COUNT]


@pytest.mark.slow
@pytest.mark.parametrize("transform", [loader_targets.noisy, loader_targets.tensor, loader_targets.draws])
def test_what_callables_draw_does_not_depend_on_workers(data: dict[str, str], transform: Any) -> None:
    chain = [*AUGMENT, transform]
    alone = epochs(data["lmdb"], 1, transform=chain)
    assert epochs(data["lmdb"], 1, transform=chain, num_workers=3) == alone
    assert epochs(data["lmdb"], 1, transform=chain, num_workers=2, worker_mode="thread") == alone
    assert epochs(data["lmdb"], 1, transform=chain, num_workers=1, multiprocessing_context="spawn") == alone


def test_no_two_samples_draw_the_same(data: dict[str, str]) -> None:
    with fastdata.DataLoader(data["lmdb"], 8, transform=loader_targets.draws, num_workers=2) as loader:
        rows = torch.cat([draws for _ in range(2) for draws, _ in loader])
    for column in rows.T.tolist():
        assert len(set(column)) == 2 * COUNT


def test_the_process_draws_on_as_if_nothing_had_happened(data: dict[str, str]) -> None:
    def drawn(load: bool) -> list[float]:
        fastdata.seed_everything(3)
        if load:
            next(iter(fastdata.DataLoader(data["lmdb"], 8, transform=loader_targets.draws, num_workers=0)))
        return [random.random(), float(np.random.rand()), torch.rand(1).item()]

    assert drawn(load=True) == drawn(load=False)


def test_fields_give_dicts(data: dict[str, str]) -> None:
    names = ("key", "index", "json", "label", "image")
    with fastdata.DataLoader(data["tar"], 4, fields=names, transform=AUGMENT, num_workers=1) as loader:
        batch = next(iter(loader))
    assert list(batch) == list(names)
    assert batch["key"] == ["a/0", "b/1", "c/2", "a/3"]
    assert [json.loads(blob)["i"] for blob in batch["json"]] == batch["index"].tolist() == [0, 1, 2, 3]
    without = fastdata.DataLoader(data["tar"], 4, fields=("key", "label"))
    assert next(iter(without))["key"] == batch["key"]


def test_a_kept_batch_is_never_overwritten(data: dict[str, str]) -> None:
    """C4: more batches than the ring ever has slots, kept in every form that a view can take."""
    with fastdata.DataLoader(data["lmdb"], 2, transform=AUGMENT, num_workers=2, prefetch_factor=1) as loader:
        forms = [lambda t: t, lambda t: t[1:], lambda t: t.numpy()[:1], lambda t: torch.from_dlpack(t.detach())]
        kept, before = [], []
        for _ in range(2):
            for number, (images, _) in enumerate(loader):
                view = forms[number % len(forms)](images)
                kept.append(view)
                before.append(pixels_of(view).copy())
                del images
    for view, pixels in zip(kept, before, strict=True):
        assert np.array_equal(pixels_of(view), pixels)


def test_slots_come_back_when_batches_are_dropped(data: dict[str, str]) -> None:
    with fastdata.DataLoader(data["lmdb"], 2, transform=AUGMENT, num_workers=1, prefetch_factor=1) as loader:
        places = {images.data_ptr() for _ in range(3) for images, _ in loader}
    assert len(places) <= 3


def test_two_iterators_are_independent(data: dict[str, str], reference: list[list[str]]) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 7, "transform": AUGMENT, "num_workers": 1}
    with fastdata.DataLoader(data["lmdb"], **options) as loader:
        pairs = list(zip(iter(loader), iter(loader), strict=True))
    assert [digest(first) for first, _ in pairs] == reference[0]
    assert [digest(second) for _, second in pairs] == reference[1]


@pytest.mark.slow
def test_leaving_and_starting_again_two_hundred_times(data: dict[str, str]) -> None:
    with fastdata.DataLoader(data["lmdb"], 4, shuffle=True, transform=AUGMENT, num_workers=2) as loader:
        for epoch in range(200):
            loader.set_epoch(epoch % 3)
            for batch in loader:
                first = digest(batch)
                break
            if epoch < 3:
                fresh = fastdata.DataLoader(data["lmdb"], 4, shuffle=True, transform=AUGMENT, num_workers=0)
                fresh.set_epoch(epoch)
                assert digest(next(iter(fresh))) == first
        gc.collect()


def test_a_sampler_and_indices_choose_the_samples(data: dict[str, str]) -> None:
    loader = fastdata.DataLoader(data["lmdb"], 4, sampler=[5, 3, 9, 1, 7], fields=("index",))
    assert [batch["index"].tolist() for batch in loader] == [[5, 3, 9, 1], [7]]
    assert len(loader) == 2
    some = fastdata.DataLoader(data["lmdb"], 4, shuffle=True, indices=range(10, 16), fields=("index",))
    assert sorted(i for batch in some for i in batch["index"].tolist()) == list(range(10, 16))


def test_an_image_dataset_brings_its_transform(data: dict[str, str], reference: list[list[str]]) -> None:
    dataset = fastdata.ImageDataset(data["lmdb"], transform=AUGMENT)
    with fastdata.DataLoader(dataset, 8, shuffle=True, seed=7, num_workers=1) as loader:
        assert [digest(batch) for batch in loader] == reference[0]
    with pytest.raises(fastdata.OptionError, match="leave one of the two out"):
        fastdata.DataLoader(dataset, transform=AUGMENT)


@pytest.mark.parametrize("data_set", [[1, 2, 3], object(), np.zeros(3)])
def test_other_data_are_pointed_to_torch(data_set: Any) -> None:
    with pytest.raises(TypeError, match=r"torch\.utils\.data\.DataLoader"):
        fastdata.DataLoader(data_set)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0}, {"batch_size": 2.5}, {"num_workers": -1}, {"prefetch_factor": 0}, {"worker_mode": "fibre"},
        {"on_error": "ignore"}, {"timeout": -1}, {"collate_fn": 3}, {"fields": "image"}, {"fields": ()},
        {"indices": []}, {"indices": [COUNT]}, {"rank": 1}, {"rank": 2, "world_size": 2}, {"cache": "disk"},
        {"multiprocessing_context": "teleport"}, {"sampler": [1], "shuffle": True}, {"seed": "x"},
        {"batch_size": 100, "drop_last": True},
    ],
)  # fmt: skip
def test_values_that_cannot_be_used_are_named(data: dict[str, str], options: dict[str, Any]) -> None:
    with pytest.raises(fastdata.OptionError):
        fastdata.DataLoader(data["lmdb"], **options)


def test_the_loader_names_itself_and_the_engine_that_shrinks(data: dict[str, str]) -> None:
    with fastdata.DataLoader(data["lmdb"], 4, num_workers=0) as loader:
        assert re.search(r"46 records.*batch_size 4, 0 workers, shrinks with \S+ \d", repr(loader))
