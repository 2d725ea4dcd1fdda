"""CUDAPrefetcher: batches on any device, and streams, events and memory on a GPU."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from fastdata.device import IMAGENET_MEAN, IMAGENET_STD, CUDAPrefetcher
from fastdata.errors import OptionError
from fastdata.scaling import make_scaling

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


class Broken(Exception):
    pass


def image_batch(count: int, size: int = 8, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def batches(count: int, size: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(image_batch(4, size, seed), torch.arange(4) + seed) for seed in range(count)]


def each(items: Iterable[Any], do: Callable[[Any], object]) -> None:
    for item in items:
        do(item)


def test_without_work_the_very_same_objects_pass() -> None:
    given: list[Any] = [*batches(2), {"x": image_batch(1)}, None, "text", [np.zeros(2)]]
    got = list(CUDAPrefetcher(given, "cpu"))
    assert all(new is old for new, old in zip(got, given, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_scaling_of_images_only(device: str) -> None:
    masks = torch.ones(4, 8, 8, dtype=torch.uint8)
    given: Any = {
        "image": image_batch(4),
        "views": [Pair(image_batch(2), torch.tensor([1, 2]))],
        "mask": masks,
        "key": "a",
    }
    (got,) = CUDAPrefetcher([given], device, mean=IMAGENET_MEAN, std=IMAGENET_STD, dtype=torch.bfloat16)
    scaling = make_scaling(IMAGENET_MEAN, IMAGENET_STD, torch.bfloat16)
    assert scaling is not None
    # Equal bits on any device.
    assert torch.equal(got["image"].cpu(), scaling(given["image"]))
    (pair,) = got["views"]
    assert isinstance(pair, Pair)
    assert torch.equal(pair.image.cpu(), scaling(given["views"][0].image))
    assert pair.label.cpu().tolist() == [1, 2]
    assert got["mask"].dtype is torch.uint8
    assert got["key"] == "a"
    assert {t.device.type for t in (got["image"], pair.image, pair.label, got["mask"])} == {device}
    assert given["image"].dtype is torch.uint8


@pytest.mark.parametrize("device", DEVICES)
def test_memory_format_stays(device: str) -> None:
    last = image_batch(4).contiguous(memory_format=torch.channels_last)
    for dtype in (None, torch.float32, torch.float16):
        (got,) = CUDAPrefetcher([last], device, dtype=dtype)
        assert got.is_contiguous(memory_format=torch.channels_last)
        (got,) = CUDAPrefetcher([last.permute(0, 2, 3, 1)], device, dtype=dtype)
        assert got.is_contiguous()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("workers", [0, 2])
def test_around_a_loader_with_a_tail_batch(device: str, workers: int) -> None:
    loader = DataLoader(TensorDataset(image_batch(10), torch.arange(10)), batch_size=4, num_workers=workers)
    prefetcher = CUDAPrefetcher(loader, device, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    assert len(prefetcher) == 3
    for _ in range(2):
        got = list(prefetcher)
        assert [len(images) for images, _ in got] == [4, 4, 2]
        assert torch.cat([labels for _, labels in got]).tolist() == list(range(10))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_exception_of_the_loader_is_raised_in_its_turn(device: str, count: int) -> None:
    def failing() -> Iterator[Any]:
        yield from batches(count)
        raise Broken("in the loader")

    got: list[int] = []
    with pytest.raises(Broken, match="in the loader"):
        each(CUDAPrefetcher(failing(), device, dtype=torch.float32), lambda batch: got.append(len(batch[0])))
    assert got == [4] * count


@pytest.mark.parametrize("device", DEVICES)
def test_an_exception_of_the_data_set_is_raised_in_its_turn(device: str) -> None:
    loader = DataLoader(FailsAt(9), batch_size=4)
    got: list[int] = []
    with pytest.raises(Broken):
        each(CUDAPrefetcher(loader, device), lambda batch: got.extend(batch.tolist()))
    assert got == list(range(8))


class FailsAt(Dataset[int]):
    def __init__(self, index: int) -> None:
        self.index = index

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        if index == self.index:
            raise Broken
        return index


@pytest.mark.parametrize("device", DEVICES)
def test_an_early_break_ends_the_loaders_iterator(device: str) -> None:
    ended: list[str] = []

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            try:
                yield from batches(5)
            finally:
                ended.append("iterator")

        def close(self) -> None:
            ended.append("loader")

    prefetcher = CUDAPrefetcher(Loader(), device)
    for _ in prefetcher:
        break
    assert ended == ["iterator"]
    assert len(list(prefetcher)) == 5
    assert ended == ["iterator", "iterator"]


def test_a_loader_that_is_its_own_iterator_is_not_closed() -> None:
    class Own:
        closed = False
        left = 3

        def __iter__(self) -> Own:
            return self

        def __next__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

        def close(self) -> None:
            self.closed = True

    own = Own()
    assert next(iter(CUDAPrefetcher(own, "cpu"))) == 2
    assert not own.closed
    generator = (batch for batch in batches(3))
    next(iter(CUDAPrefetcher(generator, "cpu")))
    assert list(generator) == []


@pytest.mark.parametrize("device", DEVICES)
def test_workers_end_after_an_early_break(device: str) -> None:
    # The fixture that fails on child processes left behind does the checking.
    loader = DataLoader(TensorDataset(image_batch(64)), batch_size=2, num_workers=2)
    for _ in CUDAPrefetcher(loader, device):
        break


def test_on_the_cpu_no_batch_is_held_for_the_consumer() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def loader() -> Iterator[torch.Tensor]:
        for seed in range(3):
            assert all(source() is None for source in alive)
            image = image_batch(2, seed=seed)
            alive.append(weakref.ref(image))
            yield_now = [image]
            del image
            yield yield_now.pop()

    for scaled in CUDAPrefetcher(loader(), "cpu", dtype=torch.float32):
        assert scaled.dtype is torch.float32
        assert alive[-1]() is None


def test_attributes_of_the_loader() -> None:
    dataset = TensorDataset(torch.arange(8))
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, num_replicas=2, rank=0)
    prefetcher = CUDAPrefetcher(DataLoader(dataset, batch_size=2, sampler=sampler), "cpu")
    assert prefetcher.dataset is dataset
    assert prefetcher.batch_size == 2
    prefetcher.sampler.set_epoch(3)
    assert sampler.epoch == 3

    class WithEpochs(list[int]):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    loader = WithEpochs()
    CUDAPrefetcher(loader, "cpu").set_epoch(5)
    assert loader.epoch == 5
    with pytest.raises(AttributeError, match="set_epoch"):
        CUDAPrefetcher([1], "cpu").set_epoch(1)


def test_copies_and_pickles() -> None:
    prefetcher = CUDAPrefetcher([image_batch(1)], "cpu", dtype=torch.float32)
    for again in (copy.copy(prefetcher), pickle.loads(pickle.dumps(prefetcher))):
        assert torch.equal(next(iter(again)), next(iter(prefetcher)))


def test_a_length_only_where_the_loader_has_one() -> None:
    with pytest.raises(TypeError, match="has no len"):
        len(CUDAPrefetcher(iter([1]), "cpu"))
    assert list(CUDAPrefetcher(iter([1]), "cpu")) == [1]


def test_floating_images_are_refused_when_scaling_was_asked_for() -> None:
    with pytest.raises(OptionError, match="let the transform return uint8"):
        list(CUDAPrefetcher([(torch.zeros(2, 3, 4, 4), 1)], "cpu", dtype=torch.float16))
    assert list(CUDAPrefetcher([(image_batch(1), "a")], "cpu", dtype=torch.float16))


def test_the_default_device() -> None:
    expected = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
    assert str(CUDAPrefetcher([]).device) == expected


@pytest.mark.parametrize("device", ["gpu", "cuda:99", 99, 1.5])
def test_impossible_devices_are_refused(device: Any) -> None:
    with pytest.raises(OptionError, match="device must be"):
        CUDAPrefetcher([], device)


def test_an_impossible_loader_is_refused() -> None:
    with pytest.raises(OptionError, match=r"loader must be an iterable of batches, like .* not 5"):
        CUDAPrefetcher(5, "cpu")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="mean and std go together"):
        CUDAPrefetcher([], "cpu", mean=IMAGENET_MEAN)


@pytest.mark.slow
def test_a_device_without_streams() -> None:
    # The path that MPS and others take; `meta` is the one such device that every torch has.
    (got,) = CUDAPrefetcher([(image_batch(2), "a")], "meta", dtype=torch.float16)
    assert got[0].device.type == "meta"
    assert got[0].dtype is torch.float16
