"""fastdata.DataLoader at its edges: what transforms may return, replacements, states, time limits, large batches."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata
from fastdata.codec.encode import encode
from tests import loader_targets, samples
from tests.loader_targets import Fails, Owner

COUNT = 24
WORKERS = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"}]
IDS = ["none", "processes", "threads"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Plain images, red by their index, which is their label, too."""
    return samples.plain_images(tmp_path_factory.mktemp("edges") / "d.lmdb")


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("unequal") / "d.tar"
    with fastdata.create(place) as writer:
        for i in range(COUNT):
            writer.write(fastdata.Record(f"r/{i}", {"jpg": encode(np.full((16 + i % 3, 16, 3), i, np.uint8), "jpg")}))
    return str(place)


def loader(data: Any, **options: Any) -> fastdata.DataLoader:
    return fastdata.DataLoader(data, **({"batch_size": 4} | options))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_unequal_images_without_a_transform_name_the_cure(unequal: str, workers: dict[str, Any], on_error: Any) -> None:
    """Also where damaged samples are skipped: these are not damaged."""
    with loader(unequal, on_error=on_error, **workers) as batches:
        with pytest.raises(fastdata.OptionError, match=r"fastdata\.Resize(.|\n)*collate_fn"):
            list(batches)
        assert batches.skipped == []


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("transform", [loader_targets.text, loader_targets.eight_bit_floats])
def test_what_no_batch_can_be_made_of_is_told(path: str, workers: dict[str, Any], transform: Any) -> None:
    with loader(path, transform=transform, **workers) as batches, pytest.raises(fastdata.OptionError, match="returned"):
        next(iter(batches))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_numbers_without_dimensions_make_a_vector(path: str, workers: dict[str, Any]) -> None:
    with loader(path, transform=loader_targets.zero_dimensions, **workers) as batches:
        assert next(iter(batches))[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_collate_fn_gets_views_of_any_kind(path: str, workers: dict[str, Any]) -> None:
    with loader(path, transform=loader_targets.mirrored, collate_fn=list, **workers) as batches:
        assert [tuple(image.shape) for image, _ in next(iter(batches))] == [(3, 16, 16)] * 4


def test_samples_that_cannot_be_sent_are_named(path: str) -> None:
    with (
        loader(path, transform=loader_targets.unsendable, collate_fn=list, num_workers=1) as batches,
        pytest.raises(fastdata.OptionError, match=r"r/0(.|\n)*cannot be sent"),
    ):
        next(iter(batches))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_a_first_sample_that_fails_is_replaced_in_a_batch_of_one(path: str, workers: dict[str, Any]) -> None:
    with loader(path, batch_size=1, transform=Fails({0}), on_error="skip", **workers) as batches:
        labels = [int(label) for _, label in batches]
    assert labels[1:] == list(range(1, COUNT))
    assert labels[0] != 0
    assert [key for key, _ in batches.skipped] == ["r/0"]


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_replacements_with_collate_fn_are_those_without(path: str, workers: dict[str, Any]) -> None:
    """Also where a replacement fails, too: two thirds of these do."""
    bad = {i for i in range(COUNT) if i % 3}
    with loader(path, transform=Fails(bad), on_error="skip", num_workers=0) as batches:
        expected = [label for _, labels in batches for label in labels.tolist()]
        skipped = list(batches.skipped)
    with loader(path, transform=Fails(bad), on_error="skip", collate_fn=list, **workers) as batches:
        samples = [sample for batch in batches for sample in batch]
    assert [int(label) for _, label in samples] == expected
    assert [int(image[0, 0, 0]) for image, _ in samples] == expected
    assert batches.skipped == skipped  # in order, whoever was first to fail


def test_skipped_lists_only_what_was_handed_out(path: str) -> None:
    with loader(path, transform=Fails({2, 9}), on_error="skip", num_workers=2) as batches:
        next(iter(batches))
        assert [key for key, _ in batches.skipped] == ["r/2"]


def test_the_timeout_counts_for_the_first_sample_too(path: str) -> None:
    batches = loader(path, transform=loader_targets.hangs, num_workers=1, timeout=0.3)
    with batches, pytest.raises(fastdata.WorkerError, match=r"timeout=0\.3"):
        next(iter(batches))


@pytest.mark.slow
@pytest.mark.parametrize("stuck_at", [0, 9])
def test_a_thread_that_is_stuck_keeps_nobody_waiting(path: str, stuck_at: int) -> None:
    freed = threading.Event()

    def waits(image: Any) -> Any:
        if image[0, 0, 0] == stuck_at:
            freed.wait()
        return image

    batches = loader(path, transform=waits, num_workers=1, worker_mode="thread", timeout=0.3)
    with batches, pytest.raises(fastdata.WorkerError, match=r"timeout=0\.3"):
        list(batches)
    assert len(list(loader(path, transform=Fails(set()), num_workers=0))) == 6
    freed.set()


@pytest.mark.slow
def test_large_batches_with_collate_fn_do_not_block_each_other(path: str) -> None:
    """Both sides send more than a pipe holds: a worker its samples, the loader a hundred batches of 500."""
    many = np.arange(COUNT).repeat(1000)
    options: dict[str, Any] = {"prefetch_factor": 100, "collate_fn": len, "num_workers": 1}
    with loader(path, batch_size=500, indices=many, **options) as batches:
        assert sum(batches) == len(many)


def test_a_batch_size_beyond_the_data_takes_no_more_than_they_need(path: str) -> None:
    with loader(path, batch_size=10**9, transform=fastdata.Resize((64, 64)), num_workers=1) as batches:
        assert [len(labels) for _, labels in batches] == [COUNT]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [{"num_workers": 0}, {"num_workers": 3, "multiprocessing_context": "spawn"}])
def test_torch_is_seeded_also_when_a_transform_imports_it(path: str, workers: dict[str, Any]) -> None:
    def drawn(**options: Any) -> list[Any]:
        with loader(path, transform=loader_targets.draws_late, **options) as batches:
            return [numbers for images, _ in batches for numbers in images.tolist()]

    assert drawn(**workers) == drawn(num_workers=2, multiprocessing_context="fork")


def test_generators_that_transforms_hold_are_seeded(path: str) -> None:
    def drawn(workers: int) -> list[Any]:
        with loader(path, transform=Owner(), num_workers=workers) as batches:
            return [numbers for images, _ in batches for numbers in images.tolist()]

    assert drawn(0) == drawn(2)
    assert len({number for (number,) in drawn(0)}) == COUNT


@pytest.mark.slow
def test_libraries_run_one_thread_in_workers(path: str, start_method: str) -> None:
    options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": start_method}
    with loader(path, transform=loader_targets.thread_counts, **options) as batches:
        assert {tuple(counts) for images, _ in batches for counts in images.tolist()} == {(1, 1)}


@pytest.mark.parametrize(
    "change",
    [{"consumed": 4000}, {"consumed": -4}, {"consumed": "8"}, {"consumed": 8.0}, {"epoch": -1}, {"epoch": "x"}],
)
def test_a_state_with_impossible_numbers_is_refused(path: str, change: dict[str, Any]) -> None:
    batches = loader(path, num_workers=0)
    with pytest.raises(fastdata.OptionError, match=next(iter(change))[:5]):
        batches.load_state_dict(batches.state_dict() | change)


def test_naming_the_epoch_that_a_state_is_in_keeps_its_place(path: str) -> None:
    batches = loader(path, num_workers=0, fields=("index",))
    state = batches.state_dict() | {"epoch": 3, "consumed": 16}
    batches.load_state_dict(state)
    batches.set_epoch(3)
    assert batches.state_dict() == state
    assert len(list(batches)) == 2
    batches.load_state_dict(state)
    batches.set_epoch(4)
    assert len(list(batches)) == 6


def test_an_epoch_that_could_not_begin_is_not_counted(path: str) -> None:
    batches = loader(path, num_workers=1, transform=lambda image: image, multiprocessing_context="spawn")
    with pytest.raises(fastdata.OptionError):
        iter(batches)
    assert batches.state_dict()["epoch"] == 0


def test_data_without_a_fingerprint_are_known_by_their_keys(photo_folder: Path) -> None:
    state = loader(str(photo_folder), num_workers=0).state_dict()
    assert state["fingerprint"]
    (photo_folder / "cat" / "0.jpg").rename(photo_folder / "cat" / "00.jpg")
    with pytest.raises(fastdata.OptionError, match="fingerprint"):
        loader(str(photo_folder), num_workers=0).load_state_dict(state)


def test_ranks_are_looked_up_when_an_epoch_begins(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader may be made before torch.distributed is started."""
    batches = loader(path, num_workers=0, fields=("index",))
    monkeypatch.setattr("fastdata.world.distributed_ranks", lambda: (1, 2))
    assert [batch["index"].tolist() for batch in batches] == [[4, 5, 6, 7], [12, 13, 14, 15], [20, 21, 22, 23]]
    assert len(batches) == 3


def test_pinned_batches_are_pinned_whole(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Size] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.shape) or tensor.clone())
    next(iter(loader(path, num_workers=0, pin_memory=True)))
    assert pinned == [(4, 3, 16, 16), (4,)]


def test_without_cuda_pinning_warns_and_does_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="no CUDA device"):
        batches = loader(path, num_workers=0, pin_memory=True)
    assert not next(iter(batches))[0].is_pinned()


def test_fields_that_no_record_has_are_told(path: str) -> None:
    with pytest.raises(fastdata.OptionError, match=r"each of fields must be .*'label', .* not 'lable'"):
        loader(path, fields=("image", "lable"))


def test_a_data_set_that_makes_its_own_samples_is_pointed_to_torch(path: str) -> None:
    class Own(fastdata.ImageDataset):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return index, index

    with pytest.raises(TypeError, match=r"torch\.utils\.data\.DataLoader"):
        loader(Own(path))


@pytest.mark.parametrize("given", [fastdata.RandomHorizontalFlip, [fastdata.CenterCrop(8), fastdata.Resize]])
def test_a_class_in_the_place_of_a_transform_is_told(path: str, given: Any) -> None:
    with pytest.raises(fastdata.OptionError, match=r"is a class; give an instance of it: fastdata\.R\w+\(\.\.\.\)"):
        fastdata.DataLoader(path, transform=given)
