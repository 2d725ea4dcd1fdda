"""CUDAPrefetcher on a device: nothing is overwritten, read too early or kept too long."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fastdata.device import IMAGENET_MEAN, IMAGENET_STD, CUDAPrefetcher
from tests.test_device import Broken, batches, image_batch, needs_cuda


def busy(cycles: int = 50_000_000) -> None:
    """Keep the current stream busy for some hundredths of a second, so that what is queued behind is pending."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


@needs_cuda
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("keep", [0, 3])
def test_a_slow_consumer_reads_what_was_sent(pinned: bool, keep: int) -> None:
    given = batches(30, size=256)
    if pinned:
        given = [(images.pin_memory(), labels.pin_memory()) for images, labels in given]
    sums: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []
    for images, labels in CUDAPrefetcher(given, "cuda"):
        busy()
        sums.append(images.long().sum() + labels.sum())
        if keep:
            kept = [*kept[-keep:], images]
        del images, labels  # their memory may go to the next copies at once
    expected = [int(images.long().sum() + labels.sum()) for images, labels in given]
    assert [int(total) for total in sums] == expected


@needs_cuda
def test_a_consumer_on_a_stream_of_its_own() -> None:
    given = batches(20, size=256)
    sums = []
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for images, _ in CUDAPrefetcher(given, "cuda"):
            assert torch.cuda.current_stream() == stream
            busy()
            sums.append(images.long().sum())
            del images
    stream.synchronize()
    assert [int(total) for total in sums] == [int(images.long().sum()) for images, _ in given]


@needs_cuda
def test_a_source_is_held_until_its_copy_is_done() -> None:
    alive: list[weakref.ref[Any]] = []

    def loader() -> Iterator[torch.Tensor]:
        for seed in range(6):
            # At most the last copy's source may still be held when the next is asked for.
            assert sum(source() is not None for source in alive) <= 1
            array = np.full((2, 3, 64, 64), seed, np.uint8)
            alive.append(weakref.ref(array))
            yield torch.from_numpy(array).pin_memory() if seed % 2 else torch.from_numpy(array)
            del array

    got = []
    for images in CUDAPrefetcher(loader(), "cuda"):
        busy()
        got.append(images.float().mean())
    assert [int(mean) for mean in got] == list(range(6))
    assert all(source() is None for source in alive)


@needs_cuda
def test_one_stream_and_flat_memory_over_40_epochs() -> None:
    given = batches(6, size=128)
    prefetcher = CUDAPrefetcher(given, "cuda", mean=IMAGENET_MEAN, std=IMAGENET_STD, dtype=torch.bfloat16)
    reserved, streams = [], set()
    for _ in range(40):
        for images, _ in prefetcher:
            (images.float() ** 2).sum()
        del images
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
        streams.add(prefetcher._side_stream)
    assert len(streams) == 1
    assert None not in streams
    assert max(reserved[5:]) == reserved[5]


@needs_cuda
@pytest.mark.parametrize("end", ["break", "exception"])
def test_an_early_end_with_copies_in_flight(end: str) -> None:
    prefetcher = CUDAPrefetcher([(i.pin_memory(), n) for i, n in batches(8, size=256)], "cuda", dtype=torch.float16)

    def leave_early() -> torch.Tensor:
        for images, _ in prefetcher:
            busy()
            if end == "exception":
                raise Broken
            return images
        raise AssertionError

    if end == "exception":
        with pytest.raises(Broken):
            leave_early()
    else:
        assert leave_early().isfinite().all()
    assert len(list(prefetcher)) == 8


@needs_cuda
def test_tensors_that_are_there_already() -> None:
    given = [(image_batch(4, seed=seed).cuda(), image_batch(1, seed=seed)) for seed in range(4)]
    for (there, _), (images, moved) in zip(given, CUDAPrefetcher(given, "cuda"), strict=True):
        assert images is there
        assert moved.is_cuda
    scaled = list(CUDAPrefetcher(given, "cuda", dtype=torch.float32))
    assert all(torch.equal(there.float() / 255, images) for (there, _), (images, _) in zip(given, scaled, strict=True))
    back = list(CUDAPrefetcher(given, "cpu"))
    assert all(images.device.type == "cpu" for images, _ in back)


@needs_cuda
@pytest.mark.parametrize("odd", ["empty", "sparse", "expanded", "transposed"])
def test_odd_tensors(odd: str) -> None:
    plain = torch.arange(12.0).view(3, 4)
    given = {
        "empty": plain[:0],
        "sparse": plain.to_sparse(),
        "expanded": plain.expand(2, 3, 4),
        "transposed": plain.t(),
    }
    (got,) = CUDAPrefetcher([given[odd]], "cuda")
    assert got.is_cuda
    assert torch.equal(got.cpu().to_dense(), given[odd].to_dense())
