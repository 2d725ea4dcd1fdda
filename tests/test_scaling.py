"""Scaling against torchvision's formula written out, over every value; which tensors count as images; arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fastdata.errors import OptionError
from fastdata.scaling import IMAGENET_MEAN, IMAGENET_STD, Scaling, is_image, make_scaling

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
STATISTICS = [(IMAGENET_MEAN, IMAGENET_STD), ((0.5,) * 3, (0.5,) * 3), ((0.0,) * 3, (1.0,) * 3)]


def every_value() -> torch.Tensor:
    """N x 3 x 16 x 16: each channel holds each of the 256 values, in another order."""
    row = torch.arange(256, dtype=torch.uint8)
    return torch.stack([row, row.flip(0), row.roll(100)]).view(1, 3, 16, 16).repeat(2, 1, 1, 1)


def by_torchvision(image: torch.Tensor, mean: Any, std: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    scaled = image.to(dtype).mul_(1.0 / 255)
    return scaled.sub_(torch.tensor(mean, dtype=dtype).view(3, 1, 1)).div_(torch.tensor(std, dtype=dtype).view(3, 1, 1))


@pytest.mark.parametrize(("mean", "std"), STATISTICS)
def test_equals_torchvision(mean: Any, std: Any) -> None:
    scaling = make_scaling(mean, std, None)
    assert scaling is not None
    ours = scaling(every_value())
    assert ours.dtype is torch.float32
    assert (ours - by_torchvision(every_value(), mean, std)).abs().max() < 1e-6
    # And nearer to the truth than a rounding or two.
    assert (ours - by_torchvision(every_value(), mean, std, torch.float64)).abs().max() < 5e-7


@pytest.mark.parametrize("dtype", FLOATS)
def test_cast_comes_last(dtype: torch.dtype) -> None:
    full, cast = make_scaling(IMAGENET_MEAN, IMAGENET_STD, None), make_scaling(IMAGENET_MEAN, IMAGENET_STD, dtype)
    assert full is not None
    assert cast is not None
    assert cast(every_value()).dtype is dtype
    assert torch.equal(cast(every_value()), full(every_value()).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtype_alone_scales_to_one(dtype: torch.dtype) -> None:
    scaling = make_scaling(None, None, dtype)
    assert scaling is not None
    ours = scaling(every_value())
    assert ours.dtype is dtype
    assert ours.min() == 0
    assert ours.max() == 1
    assert torch.equal(ours, (every_value().float() / 255).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_format_and_layout_stay(dtype: torch.dtype) -> None:
    scaling = make_scaling(IMAGENET_MEAN, IMAGENET_STD, dtype)
    assert scaling is not None
    plain = every_value()
    last = plain.contiguous(memory_format=torch.channels_last)
    single = last[:1].contiguous(memory_format=torch.channels_last)
    expected = scaling(plain)
    assert expected.is_contiguous()
    for given in (last, single):
        scaled = scaling(given)
        assert scaled.stride() == given.stride()
        assert scaled.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(scaled, expected[: len(given)])
    nhwc = last.permute(0, 2, 3, 1)
    assert nhwc.is_contiguous()
    scaled = scaling(nhwc)
    assert scaled.is_contiguous()
    assert torch.equal(scaled.permute(0, 3, 1, 2), expected)
    assert torch.equal(scaling(plain[:, :, ::2, 1::3]), expected[:, :, ::2, 1::3])
    assert torch.equal(plain, every_value())


def test_odd_sizes() -> None:
    scaling = make_scaling(IMAGENET_MEAN, IMAGENET_STD, None)
    assert scaling is not None
    for shape in [(0, 3, 4, 4), (1, 3, 1, 1), (3, 3, 3, 3), (2, 3, 0, 5), (1, 1, 1, 3)]:
        assert scaling(torch.zeros(shape, dtype=torch.uint8)).shape == shape


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((8, 3, 5, 6), torch.uint8, True),
        ((8, 5, 6, 3), torch.uint8, True),
        ((8, 1, 5, 6), torch.uint8, False),  # masks
        ((8, 5, 6), torch.uint8, False),  # masks
        ((3, 5, 6), torch.uint8, False),  # one image or three masks: cannot be told apart
        ((8, 4, 5, 6), torch.uint8, False),
        ((8, 3), torch.uint8, False),
        ((8,), torch.int64, False),
        ((8, 3, 5, 6), torch.int64, False),
        ((8, 3, 5, 6), torch.float32, False),
        ((2, 8, 3, 5, 6), torch.uint8, False),
    ],
)
def test_what_is_an_image(shape: tuple[int, ...], dtype: torch.dtype, expected: bool) -> None:
    tensor = torch.zeros(shape, dtype=dtype)
    assert is_image(tensor) == expected
    scaling = make_scaling(None, None, torch.float32)
    assert scaling is not None
    assert (scaling(tensor) is not tensor) == expected


def test_both_dimensions_of_three_mean_channels_first() -> None:
    scaling = Scaling(IMAGENET_MEAN, IMAGENET_STD, torch.float32)
    square = torch.full((1, 3, 2, 3), 255, dtype=torch.uint8)
    assert scaling(square)[0, :, 0, 0].tolist() == pytest.approx(
        [(1 - m) / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)]
    )


def test_floating_images_alone_are_refused() -> None:
    scaling = Scaling(IMAGENET_MEAN, IMAGENET_STD, torch.float32)
    floating = torch.zeros(2, 3, 4, 4)
    with pytest.raises(OptionError, match=r"floating ones only \(float32 \(2, 3, 4, 4\), int64 \(2,\)\)"):
        scaling.check((floating, torch.zeros(2, dtype=torch.int64)))
    scaling.check((floating, every_value()))  # a target beside the images
    scaling.check((torch.zeros(2, 7), "text"))
    scaling.check(None)


def test_nothing_asked_for() -> None:
    assert make_scaling(None, None, None) is None


@pytest.mark.parametrize("given", [[0.5, 0.5, 0.5], np.full(3, 0.5), torch.full((3,), 0.5), iter([0.5, 0.5, 0.5])])
def test_any_three_numbers(given: Any) -> None:
    scaling = make_scaling(given, (0.5, 0.5, 0.5), None)
    assert scaling is not None
    assert scaling(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten().tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("mean", "std", "dtype", "message"),
    [
        (IMAGENET_MEAN, None, None, r"mean=\(0\.485, 0\.456, 0\.406\) came without std"),
        (None, IMAGENET_STD, None, r"std=\(0\.229, .*\) came without mean"),
        ((0.5,), (0.5,), None, r"mean must be three numbers, one for each channel, .* not \(0\.5,\)"),
        (0.5, 0.5, None, r"mean must be three numbers.* not 0\.5"),
        ("abc", (1, 1, 1), None, r"mean must be three numbers.* not 'abc'"),
        ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), None, r"mean must be .*divide by 255.* not \(123\.675, "),
        ((math.nan,) * 3, (1, 1, 1), None, r"mean must be .* not \(nan"),
        ((0, 0, 0), (1, 0, 1), None, r"std must be three numbers, one for each channel, above 0, not \(1, 0, 1\)"),
        ((0, 0, 0), (1, math.inf, 1), None, r"std must be .* not \(1, inf, 1\)"),
        (
            None,
            None,
            torch.uint8,
            r"dtype must be torch\.float32, torch\.float16, torch\.bf.* or None, not torch\.uint8",
        ),
        (None, None, "float32", r"dtype must be .* not 'float32'"),
    ],
)
def test_bad_arguments(mean: Any, std: Any, dtype: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_scaling(mean, std, dtype)
