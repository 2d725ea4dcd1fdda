"""Transforms as values: what may be written, what is refused, how they print and pickle; and what a pipeline is."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastdata.transforms
from fastdata.errors import OptionError
from fastdata.transforms import (
    CenterCrop,
    Letterbox,
    Pipeline,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from fastdata.transforms.geometry import Geometric
from tests import images

RGB = NDArray[np.uint8]


@pytest.mark.parametrize(
    "t", [RandomResizedCrop(20), CenterCrop(99), Resize(9), RandomHorizontalFlip(1), Letterbox(30)]
)
def test_called_alone_a_transform_draws_from_random(t: Geometric) -> None:
    rgb = images.photo(60, 40)
    kept = rgb.copy()
    random.seed(1)
    first = t(rgb)
    random.seed(1)
    again = t(np.asfortranarray(rgb))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(rgb, kept)
    assert first.flags.c_contiguous
    assert first.flags.writeable
    assert not np.shares_memory(first, rgb)


@pytest.mark.parametrize("value", [np.zeros((3, 4), np.uint8), np.zeros((3, 4, 3)), "x", np.zeros((0, 4, 3), np.uint8)])
def test_called_alone_a_transform_refuses_what_is_not_an_image(value: Any) -> None:
    with pytest.raises(OptionError, match=r"Resize takes an H x W x 3 array of uint8 that is not empty, not .* put it"):
        Resize(3)(value)


ALL = [
    RandomResizedCrop((3, 4), (0.1, 0.9), (0.5, 2), antialias=False), CenterCrop(5), Resize(3, max_size=9),
    Resize((3, 4)), Resize(4, antialias=False), RandomHorizontalFlip(0.25), RandomVerticalFlip(1),
    Letterbox((4, 5), fill=(1, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("t", ALL, ids=repr)
def test_transforms_are_values(t: Geometric) -> None:
    assert eval(repr(t), vars(fastdata.transforms)) == t
    assert pickle.loads(pickle.dumps(t)) == t
    assert hash(t) == hash(pickle.loads(pickle.dumps(t)))
    with pytest.raises(AttributeError):
        t.size = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomResizedCrop(0), r"RandomResizedCrop: size must be an integer from 1 to 65535 or \(height"),
        (lambda: RandomResizedCrop(2.5), "not 2.5"),
        (lambda: RandomResizedCrop("224"), "not '224'"),
        (lambda: RandomResizedCrop((1, 2, 3)), r"not \(1, 2, 3\)"),
        (lambda: RandomResizedCrop(3, scale=(1, 0.5)), "scale must be .least, most. with 0 <= least <= most"),
        (lambda: RandomResizedCrop(3, ratio=2), "ratio must be"),
        (lambda: RandomResizedCrop(3, antialias=1), "antialias must be True or False, not 1"),
        (lambda: CenterCrop(True), "CenterCrop: size must be .* not True"),
        (lambda: Resize((3, 4), max_size=9), "max_size=9 needs a size that is one int"),
        (lambda: Resize(5, max_size=5), "Resize: max_size must be an integer from 6 to 65535, not 5"),
        (lambda: Resize((3, 4, 5)), "Resize: size must be an integer from 1 to 65535 or .height, width., not"),
        (lambda: RandomHorizontalFlip(1.5), "p must be a number from 0 to 1, not 1.5"),
        (lambda: RandomVerticalFlip("x"), "p must be a number"),
        (lambda: Letterbox(3, fill=256), "fill must be a level from 0 to 255"),
        (lambda: Letterbox(3, fill=(1, 2)), r"not \(1, 2\)"),
        (lambda: Pipeline("x"), "a transform must be callable, or a list of callables such as .* not 'x'"),
        (lambda: Pipeline([3]), "a transform must be callable, not 3"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make()


def test_sizes_may_be_spelled_as_in_torchvision() -> None:
    assert RandomResizedCrop([7]) == RandomResizedCrop(7) == RandomResizedCrop((7, 7)) == RandomResizedCrop(np.int64(7))
    assert Resize([7]) == Resize(7)
    assert Resize(7) != Resize((7, 7))
    assert Letterbox(7, fill=3) == Letterbox((7, 7), fill=(3, 3, 3))


def test_a_pipeline_has_two_parts() -> None:
    def pixels(array: RGB) -> RGB:
        return array + 1

    crop, flip = RandomResizedCrop(8), RandomHorizontalFlip(1)
    pipeline = Pipeline([crop, pixels, flip])
    assert pipeline.geometric == (crop,)
    assert [one.transform for one in pipeline.callables] == [pixels, flip]
    assert pipeline.size == (8, 8)
    assert Pipeline(None).size is None
    assert Pipeline().numbers(0, 0, [1, 2]).shape == (2, 0)
    assert Pipeline([Resize(9), CenterCrop(7)]).size == (7, 7)
    assert Pipeline([CenterCrop((7, 8)), Resize(14)]).size == (14, 16)
    assert Pipeline(Resize(9)).size is None
    assert Pipeline(pixels).call(np.zeros((2, 2, 3), np.uint8)).max() == 1
    copy = pickle.loads(pickle.dumps(Pipeline([crop, flip])))
    row = copy.numbers(0, 0, [3])[0].tolist()
    assert copy.plan((20, 30), row) == Pipeline([crop, flip]).plan((20, 30), row)
