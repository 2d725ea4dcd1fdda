"""Batches that are shared among workers in parts, and images that are begun some at a time: the same results."""

from __future__ import annotations

import hashlib
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fastdata
from fastdata.codec import jpeg
from fastdata.codec.decode import decode
from fastdata.codec.encode import encode
from fastdata.formats.files import DataFiles
from fastdata.loader import process_executor, sample_maker
from tests import images, samples
from tests.loader_targets import Fails

COUNT = 60
CROP = [fastdata.RandomResizedCrop(24), fastdata.RandomHorizontalFlip()]


@pytest.fixture
def _usual_parts() -> None:
    """For tests that leave the sizes as they are."""


@pytest.fixture(autouse=True)
def _small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "_usual_parts" not in request.fixturenames:
        monkeypatch.setattr(process_executor, "_LEAST_PART", 3)
        monkeypatch.setattr(sample_maker, "_PREPARED", 4)  # what a forked worker has, too


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of all the kinds that are rendered in different ways, between one another."""
    place = tmp_path_factory.mktemp("parts") / "d.lmdb"
    with fastdata.create(place) as writer:
        for i in range(COUNT):
            image = images.photo(90 + i % 7, 70 + i % 5, seed=i)
            kinds = (
                ("jpg", encode(image, "jpg")),
                ("jpg", images.jpeg(image)),
                ("png", encode(image, "png")),
                ("npy", encode(image, "npy")),
            )
            name, blob = kinds[i % len(kinds)]
            writer.write(fastdata.Record(f"r/{i:02d}", {name: blob, "cls": b"%d" % i}))
    return str(place)


def digest(batches: Any) -> list[tuple[str, list[int]]]:
    return [(hashlib.sha256(x.contiguous().numpy().tobytes()).hexdigest(), y.tolist()) for x, y in batches]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [5, 17, COUNT])
def test_parts_make_the_same_batches(path: str, workers: int, batch_size: int) -> None:
    options: dict[str, Any] = {"shuffle": True, "transform": CROP, "seed": 3}
    with fastdata.DataLoader(path, batch_size, num_workers=0, **options) as alone:
        expected = [digest(alone), digest(alone)]
    with fastdata.DataLoader(path, batch_size, num_workers=workers, **options) as shared:
        assert [digest(shared), digest(shared)] == expected


def test_parts_of_samples_for_collate_fn_come_in_order(path: str) -> None:
    with fastdata.DataLoader(path, 20, num_workers=3, collate_fn=list, fields=("image", "index")) as loader:
        for number, batch in enumerate(loader):
            assert [sample["index"] for sample in batch] == list(range(20 * number, 20 * number + 20))
            shapes = [tuple(sample["image"].shape[1:]) for sample in batch]
            assert shapes == [(70 + i % 5, 90 + i % 7) for i in range(20 * number, 20 * number + 20)]


def test_the_first_of_several_failures_is_the_one_that_is_raised(tmp_path: Path) -> None:
    """Whether it comes to light while an image is begun or while it is finished, and in whatever part."""
    blobs = [encode(images.photo(64, 64, seed=i), "jpg") for i in range(24)]
    for rows in ({6, 7}, {7, 6, 20}, {3, 9, 15, 21}):
        place = tmp_path / f"{min(rows)}-{len(rows)}.lmdb"
        with fastdata.create(place) as writer:
            for i, blob in enumerate(blobs):
                # Cut data are seen at once, impossible Huffman tables by the decoder alone.
                table = blob.index(b"\xff\xc4") + 5
                broken = blob[: len(blob) // 2] if i % 2 else blob[:table] + bytes([255] * 16) + blob[table + 16 :]
                writer.write(fastdata.Record(f"r/{i:02d}", {"jpg": broken if i in rows else blob, "cls": b"0"}))
        for workers in (0, 3):
            options: dict[str, Any] = {"transform": CROP, "num_workers": workers}
            with (
                fastdata.DataLoader(str(place), 24, **options) as loader,
                pytest.raises(fastdata.DecodeError, match=rf"r/{min(rows):02d}(.|\n)*The stack where it was made"),
            ):
                next(iter(loader))
            with fastdata.DataLoader(str(place), 24, **options, on_error="skip") as loader:
                assert len(next(iter(loader))[0]) == 24
                skipped = [int(key[2:]) for key, _ in loader.skipped]
                assert skipped[: len(rows)] == sorted(rows)


@pytest.mark.slow
def test_leaving_an_epoch_with_parts_at_work_leaves_nothing_behind(path: str) -> None:
    with fastdata.DataLoader(path, 20, num_workers=3, transform=CROP, prefetch_factor=1) as loader:
        expected = digest(loader)
        loader.set_epoch(0)
        for _ in range(30):
            next(iter(loader))
            loader.set_epoch(0)
        assert digest(loader) == expected
        loader.set_epoch(0)
        kept = [x for _ in range(4) for x, _ in [next(iter(loader))] for _ in [loader.set_epoch(0)]]
        first = kept[0].clone()
        assert digest(loader) == expected
        assert all(np.array_equal(x.numpy(), first.numpy()) for x in kept)


def test_a_worker_that_dies_with_one_part_ends_the_batch(path: str) -> None:
    options: dict[str, Any] = {"num_workers": 3, "transform": [*CROP, Fails(set(range(128)), "kill")]}
    with (
        fastdata.DataLoader(path, COUNT, **options) as loader,
        pytest.raises(fastdata.WorkerError, match="signal 9"),
    ):
        list(loader)


@pytest.mark.slow
@pytest.mark.usefixtures("_usual_parts")
@pytest.mark.parametrize("layout", ["lmdb", "hdf5", "shards"])
def test_whole_parts_make_the_same_batches_under_every_start_method(
    layout: str, start_method: str, tmp_path: Path
) -> None:
    image = [encode(images.photo(40 + i % 3, 36, seed=i), "jpg") for i in range(20)]
    records = [fastdata.Record(f"r/{i:03d}", {"jpg": image[i % 20], "cls": b"%d" % (i % 3)}) for i in range(200)]
    data = samples.write(tmp_path, layout, records, shard_size=40_000)
    options: dict[str, Any] = {"shuffle": True, "transform": CROP, "seed": 5}
    with fastdata.DataLoader(data, 128, num_workers=0, **options) as alone:
        expected = [digest(alone), digest(alone)]
    with fastdata.DataLoader(data, 128, num_workers=3, multiprocessing_context=start_method, **options) as shared:
        assert [digest(shared), digest(shared)] == expected


@pytest.mark.usefixtures("_usual_parts")
def test_images_are_prepared_32_at_a_time_and_then_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half finds its code and tables in the processor's caches, which is worth a tenth of the images a second."""
    blob = encode(images.photo(64, 64), "jpg")
    data = samples.write(tmp_path, "lmdb", [fastdata.Record(f"r/{i}", {"jpg": blob, "cls": b"0"}) for i in range(70)])
    events: list[str] = []
    for owner, name, event in ((DataFiles, "read", "r"), (jpeg, "pixels", "d")):
        original = getattr(owner, name)

        def spied(*arguments: Any, original: Any = original, event: str = event, **options: Any) -> Any:
            events.append(event)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, spied)
    with fastdata.DataLoader(data, 70, num_workers=0, transform=CROP) as loader:
        list(loader)
    assert "".join(events) == "r" * 32 + "d" * 32 + "r" * 32 + "d" * 32 + "r" * 6 + "d" * 6


def test_no_pixel_passes_through_a_pipe(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    for name in ("send_bytes", "_send_bytes", "_recv_bytes"):
        original = getattr(Connection, name)

        def spied(self: Connection, *arguments: Any, original: Any = original) -> Any:
            result = original(self, *arguments)
            sent.append(len(arguments[0]) if arguments and arguments[0] is not None else len(result.getbuffer()))
            return result

        monkeypatch.setattr(Connection, name, spied)
    with fastdata.DataLoader(path, 20, num_workers=2, transform=fastdata.CenterCrop(64)) as loader:
        iterator = iter(loader)
        next(iterator)
        sent.clear()  # what workers are started with
        pixels = sum(images.numel() for images, _ in iterator)
    assert pixels == 40 * 3 * 64 * 64
    assert sent
    assert sum(sent) < pixels / 50


def test_callables_run_one_at_a_time_in_threads(path: str) -> None:
    inside, most = [0], [0]

    def counting(image: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.001)
        inside[0] -= 1
        return image

    options: dict[str, Any] = {"num_workers": 4, "worker_mode": "thread"}
    with fastdata.DataLoader(path, 5, transform=[fastdata.CenterCrop(16), counting], **options) as loader:
        assert sum(len(labels) for _, labels in loader) == COUNT
    assert most == [1]


def test_exact_never_decodes_at_a_reduced_scale(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        writer.write(fastdata.Record("a", {"jpg": encode(images.photo(300, 300, seed=1), "jpg"), "cls": b"0"}))
    batches = {}
    for exact in (False, True):
        options: dict[str, Any] = {"num_workers": 0, "exact": exact, "transform": fastdata.Resize((64, 64))}
        with fastdata.DataLoader(str(tmp_path / "d.lmdb"), **options) as loader:
            batches[exact] = next(iter(loader))[0][0].permute(1, 2, 0).numpy()
    with fastdata.open(tmp_path / "d.lmdb") as reader:
        whole = Image.fromarray(decode(reader.image(0)[1])).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.abs(batches[True].astype(int) - np.asarray(whole)).max() <= 2
    assert (batches[False] != batches[True]).any()
