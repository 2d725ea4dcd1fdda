"""What a transform is called with, and what its errors tell."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastdata
from tests import images

SIZE = (12, 10)


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = str(tmp_path / "d.lmdb")
    with fastdata.create(place, classes=["a", "b"]) as writer:
        for number in range(6):
            png = images.png(images.photo(*SIZE, seed=number))
            writer.write(fastdata.Record(f"k/{number}", {"png": png, "cls": b"%d" % (number % 2)}))
    return place


def form_of(image: Any) -> np.ndarray[Any, Any]:
    """Which form an image came in, as an array that can be batched."""
    if isinstance(image, Image.Image):
        assert (image.mode, image.size) == ("RGB", SIZE)
        return np.full((2, 2, 3), 1, np.uint8)
    if isinstance(image, torch.Tensor):
        assert (image.shape, image.dtype) == ((3, *SIZE[::-1]), torch.uint8)
        return np.full((2, 2, 3), 2, np.uint8)
    assert (image.shape, image.dtype) == ((*SIZE[::-1], 3), np.uint8)
    return np.full((2, 2, 3), 3, np.uint8)


def as_it_is(image: Any) -> Any:
    assert isinstance(image, np.ndarray)
    return image


FORMS = {"pil": 1, "tensor": 2, "array": 3, None: 3}


@pytest.mark.parametrize("form", FORMS)
def test_the_first_callable_gets_the_form_and_the_next_what_it_returned(form: Any, path: str) -> None:
    transform = [form_of, as_it_is]
    data = fastdata.ImageDataset(path, transform, form=form)
    assert int(data[0][0][0, 0, 0]) == FORMS[form]
    assert int(pickle.loads(pickle.dumps(data))[0][0][0, 0, 0]) == FORMS[form]
    stream = fastdata.ImageStream(path, transform=transform, form=form)
    assert {int(image[0, 0, 0]) for image, _ in stream} == {FORMS[form]}
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"}):
        for given in (path, data):
            more: dict[str, Any] = {} if given is data else {"transform": transform, "form": form}
            with fastdata.DataLoader(given, 3, **more, **options) as loader:
                assert {int(value) for batch, _ in loader for value in batch.unique()} == {FORMS[form]}


def test_without_a_transform_the_form_is_what_comes(path: str) -> None:
    plain = fastdata.ImageDataset(path)[1][0]
    pil, tensor = (fastdata.ImageDataset(path, form=form)[1][0] for form in ("pil", "tensor"))
    assert isinstance(pil, Image.Image)
    assert np.array_equal(np.asarray(pil), plain)
    assert torch.equal(tensor, torch.from_numpy(plain).permute(2, 0, 1))
    cropped = fastdata.ImageDataset(path, fastdata.CenterCrop(8), form="pil")[1][0]
    assert cropped.size == (8, 8)


class V1ToTensor:
    """As torchvision's first version: an image of PIL's only."""

    def __call__(self, image: Any) -> Any:
        assert isinstance(image, Image.Image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


V1ToTensor.__module__ = "torchvision.transforms.transforms"
V1ToTensor.__name__ = V1ToTensor.__qualname__ = "ToTensor"


def test_what_takes_pil_images_only_works_with_that_form_and_is_refused_without(path: str) -> None:
    with pytest.raises(fastdata.OptionError, match="form='pil'"):
        fastdata.ImageDataset(path, V1ToTensor())
    assert fastdata.ImageDataset(path, V1ToTensor(), form="pil")[0][0].shape == (3, *SIZE[::-1])
    chain = [lambda image: image.transpose(0), V1ToTensor()]
    assert fastdata.ImageDataset(path, chain, form="pil")[0][0].dtype == torch.float32


def test_a_form_that_there_is_not_is_refused(path: str) -> None:
    for make in (fastdata.ImageDataset, fastdata.DataLoader, fastdata.ImageStream):
        with pytest.raises(fastdata.OptionError, match="form must be 'array', 'tensor', 'pil' or None, not 'PIL'"):
            make(path, form="PIL")


def wants_pil(image: Any) -> Any:
    return image.convert("RGB")


def wants_float(image: Any) -> Any:
    return torch.nn.functional.normalize(image)


def stops(_image: Any) -> Any:
    raise StopIteration


def breaks(_image: Any) -> Any:
    raise ValueError("oh")


def loaded(path: str, transform: Any, **options: Any) -> Any:
    with fastdata.DataLoader(path, 3, transform=transform, **{"num_workers": 0, **options}) as loader:
        return list(loader)


WAYS: list[Callable[[str, Any], Any]] = [
    lambda path, transform: list(fastdata.ImageDataset(path, transform)),
    lambda path, transform: list(torch.utils.data.DataLoader(fastdata.ImageDataset(path, transform), 3)),
    lambda path, transform: list(fastdata.ImageStream(path, transform=transform)),
    loaded,
    lambda path, transform: loaded(path, transform, num_workers=1),
    lambda path, transform: loaded(path, transform, collate_fn=list),
    lambda path, transform: loaded(path, transform, num_workers=1, worker_mode="thread"),
]


@pytest.mark.parametrize("transform", [wants_pil, wants_float, stops, breaks])
def test_an_error_of_a_transform_names_data_set_record_and_function(transform: Any, path: str) -> None:
    for way in WAYS:
        with pytest.raises(fastdata.LoadError, match=f"record 'k/0': transform {transform.__name__}: ") as told:
            way(path, transform)
        first = str(told.value).split("\n")[0]
        assert path in first or "DataLoader worker" in first
        assert "form='pil'" in first or "form='pil'" in str(told.value)


def test_an_error_of_a_target_transform_ends_no_loop(path: str) -> None:
    data = fastdata.ImageDataset(path, fastdata.CenterCrop(8), target_transform=stops)
    for way in (lambda: list(data), lambda: loaded(data, None), lambda: loaded(path, None, collate_fn=stops)):
        with pytest.raises(fastdata.LoadError, match="StopIteration"):
            way()
