"""What code written for torch's DataLoader and torchvision's ImageFolder asks for is there, or refused in words."""

from __future__ import annotations

import contextlib
import copy
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import SequentialSampler, Subset, TensorDataset, random_split

import fastdata

CROP = fastdata.CenterCrop(8)


@pytest.fixture
def loader(photo_folder: Path) -> Iterator[fastdata.DataLoader]:
    with fastdata.DataLoader(photo_folder, 5, transform=CROP, num_workers=0) as made:
        yield made


def torch_attributes() -> list[str]:
    """Names of torch's arguments that its loader has as attributes."""
    made = TorchLoader(TensorDataset(torch.arange(4)))
    return [name for name in inspect.signature(TorchLoader).parameters if name != "shuffle" and hasattr(made, name)]


def test_torchs_attributes_are_there_also_behind_a_prefetcher(loader: fastdata.DataLoader) -> None:
    names = torch_attributes()
    assert {"dataset", "sampler", "batch_sampler", "collate_fn", "timeout", "generator"} <= set(names)
    for holder in (loader, fastdata.CUDAPrefetcher(loader, device="cpu")):
        assert [name for name in names if not hasattr(holder, name)] == []
        assert (len(holder.dataset), holder.batch_size, holder.num_workers, holder.drop_last) == (12, 5, 0, False)
        assert (holder.timeout, holder.pin_memory, holder.prefetch_factor, holder.collate_fn) == (0, False, None, None)


def test_the_dataset_is_what_was_given_or_one_like_it(photo_folder: Path) -> None:
    given = fastdata.ImageDataset(photo_folder, CROP)
    with fastdata.DataLoader(given, 4, num_workers=0) as made:
        assert made.dataset is given
    with fastdata.DataLoader(photo_folder, 4, transform=CROP, indices=[3, 1], num_workers=0) as made:
        assert isinstance(made.dataset, Subset)
        assert len(made.dataset) == 2
        image, label = made.dataset[0]
        assert (image.shape, label) == ((8, 8, 3), given[3][1])


def test_the_sampler_is_that_of_the_user_or_stands_for_the_order(photo_folder: Path) -> None:
    given = SequentialSampler(range(12))
    with fastdata.DataLoader(photo_folder, 4, transform=CROP, sampler=given, num_workers=0) as made:
        assert made.sampler is given
    options: dict[str, Any] = {"shuffle": True, "fields": ["index"], "num_workers": 0}
    for rank in range(2):
        with fastdata.DataLoader(photo_folder, 4, rank=rank, world_size=2, **options) as made:
            made.sampler.set_epoch(3)
            expected = list(made.sampler)
            assert len(made.sampler) == len(expected) == 6
            assert [index for batch in made for index in batch["index"].tolist()] == expected


@pytest.mark.parametrize(
    "name",
    [
        "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
        "drop_last", "timeout", "worker_init_fn", "generator", "prefetch_factor", "persistent_workers", "seed",
        "transform", "on_error", "indices", "repeats", "views", "fields", "reader", "verify", "multiprocessing_context",
    ],
)  # fmt: skip
def test_what_a_loader_was_made_with_cannot_be_changed(loader: fastdata.DataLoader, name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name} cannot be changed.*make another loader"):
        setattr(loader, name, None)
    with pytest.raises(AttributeError, match=f"{name} cannot be changed"):
        setattr(fastdata.CUDAPrefetcher(loader, device="cpu"), name, None)


def test_arguments_of_torch_at_their_defaults_change_nothing(photo_folder: Path) -> None:
    defaults: dict[str, Any] = {
        "batch_sampler": None, "worker_init_fn": None, "generator": None, "pin_memory_device": "", "in_order": True,
        "shuffle": None, "prefetch_factor": None, "multiprocessing_context": None, "sampler": None,
    }  # fmt: skip
    with fastdata.DataLoader(photo_folder, 4, transform=CROP, num_workers=0, **defaults) as made:
        assert made.shuffle is False
        assert sum(len(labels) for _, labels in made) == 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"worker_init_fn": len}, "seeding"),
        ({"generator": 1}, "seed="),
        ({"in_order": False}, "in order"),
    ],
)
def test_arguments_of_torch_that_have_no_meaning_are_refused(
    photo_folder: Path, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(fastdata.OptionError, match=words):
        fastdata.DataLoader(photo_folder, 4, **arguments)


def test_unknown_arguments_are_refused_with_what_may_have_been_meant(photo_folder: Path) -> None:
    with pytest.raises(TypeError, match="'dataset': the first argument is the data"):
        fastdata.DataLoader(photo_folder, 4, dataset=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'num_worker': did you mean 'num_workers'"):
        fastdata.DataLoader(photo_folder, 4, num_worker=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'loader': fastdata decodes the images"):
        fastdata.ImageDataset(photo_folder, loader=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'transfrom': did you mean 'transform'"):
        fastdata.ImageDataset(photo_folder, transfrom=1)  # type: ignore[arg-type]


def test_the_engines_at_work_are_told(loader: fastdata.DataLoader) -> None:
    for name in ("simplejpeg", "isal", "batch_size 5", "0 workers"):
        assert name in repr(loader)


def test_image_folders_attributes_are_there_or_refused(photo_folder: Path) -> None:
    data = fastdata.ImageDataset(photo_folder)
    assert data.root == str(photo_folder)
    assert {".jpg", ".png"} <= set(data.extensions)
    for name in ("loader", "is_valid_file", "find_classes", "allow_empty"):
        with pytest.raises(AttributeError, match=f"{name!r}; "):
            getattr(data, name)
    with pytest.raises(AttributeError, match=r"no attribute 'classses'$"):
        data.classses  # noqa: B018
    assert copy.copy(data).classes == pickle.loads(pickle.dumps(data)).classes == data.classes
    for name in ("verify", "max_pixels"):  # decided when it was opened
        with pytest.raises(AttributeError):
            setattr(data, name, 1)


def test_a_subset_is_refused_with_the_argument_that_takes_its_place(photo_folder: Path) -> None:
    part = random_split(fastdata.ImageDataset(photo_folder), [8, 4])[0]  # type: ignore[var-annotated]
    with pytest.raises(TypeError, match="indices="):
        fastdata.DataLoader(part, 4)  # type: ignore[arg-type]


def test_nothing_is_printed_unless_asked_for(photo_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for progress in (False, True):
        data = fastdata.ImageDataset(photo_folder, cache="ram", progress=progress)
        with contextlib.closing(data.reader):
            assert data[0][1] == 0
        with fastdata.DataLoader(photo_folder, 4, transform=CROP, num_workers=0, cache="ram") as made:
            list(made)
            made.reader.close()
        out, err = capfd.readouterr()
        assert (out, bool(err)) == ("", progress)


def test_a_loader_is_not_pickled_and_says_so(loader: fastdata.DataLoader) -> None:
    for sent in (loader, fastdata.CUDAPrefetcher(loader, device="cpu")):
        with pytest.raises(TypeError, match="make one where it is used"):
            pickle.dumps(sent)
