"""Geometry: torchvision's rules, in any composition, alike for image, mask and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import fastdata.transforms
from fastdata import seeding
from fastdata.errors import OptionError
from fastdata.size import Size
from fastdata.transforms import (
    CenterCrop,
    Letterbox,
    Pipeline,
    Plan,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    apply_to_boxes,
    apply_to_mask,
)
from fastdata.transforms.geometry import Geometric
from fastdata.transforms.plan import needed
from fastdata.transforms.render import render_array
from tests import images

RGB = NDArray[np.uint8]


# The rules once more, step by step on pixels, as torchvision's documentation and behaviour have them.
def shrink(rgb: RGB, width: int, height: int) -> RGB:
    if rgb.shape[:2] == (height, width):
        return rgb
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BILINEAR))


def shorter(width: int, height: int, size: int, longest: int | None) -> tuple[int, int]:
    new = [size, int(size * height / width)] if width <= height else [int(size * width / height), size]
    if longest is not None and max(new) > longest:
        low = int(longest * size / max(new))
        new = [max(low, 1), longest] if width <= height else [longest, max(low, 1)]
    return new[0], new[1]


def crop_params(t: RandomResizedCrop, width: int, height: int, numbers: Sequence[float]) -> tuple[int, int, int, int]:
    area, logs = width * height, [math.log(bound) for bound in t.ratio]
    for number in range(10):
        pair = numbers[:2]
        if number:
            pair = [seeding.draw(int(numbers[4] * 2**53), 2 * number + more) for more in (0, 1)]
        target = area * (t.scale[0] + pair[0] * (t.scale[1] - t.scale[0]))
        aspect = math.exp(logs[0] + pair[1] * (logs[1] - logs[0]))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(numbers[3] * (width - w + 1)), int(numbers[2] * (height - h + 1)), w, h
    w, h = width, height
    if width / height < min(t.ratio):
        h = round(w / min(t.ratio))
    elif width / height > max(t.ratio):
        w = round(h * max(t.ratio))
    w, h = max(w, 1), max(h, 1)
    return (width - w) // 2, (height - h) // 2, w, h


def by_hand(t: Geometric, rgb: RGB, numbers: Sequence[float]) -> RGB:
    height, width = rgb.shape[:2]
    if isinstance(t, RandomResizedCrop):
        x, y, w, h = crop_params(t, width, height, numbers)
        return shrink(rgb[y : y + h, x : x + w], t.size[1], t.size[0])
    if isinstance(t, CenterCrop):
        h, w = t.size
        left, top = max((w - width) // 2, 0), max((h - height) // 2, 0)
        right, bottom = max((w - width + 1) // 2, 0), max((h - height + 1) // 2, 0)
        rgb = np.pad(rgb, ((top, bottom), (left, right), (0, 0)))
        y, x = round((rgb.shape[0] - h) / 2), round((rgb.shape[1] - w) / 2)
        return rgb[y : y + h, x : x + w]
    if isinstance(t, Resize) and isinstance(t.size, tuple):
        return shrink(rgb, t.size[1], t.size[0])
    if isinstance(t, Resize):
        return shrink(rgb, *shorter(width, height, t.size, t.max_size))
    if isinstance(t, Letterbox):
        h, w = t.size
        sides = (w, w * height // width) if w / width <= h / height else (h * width // height, h)
        inner = shrink(rgb, max(sides[0], 1), max(sides[1], 1))
        out = np.empty((h, w, 3), np.uint8)
        out[:] = t.fill
        y, x = (h - inner.shape[0]) // 2, (w - inner.shape[1]) // 2
        out[y : y + inner.shape[0], x : x + inner.shape[1]] = inner
        return out
    assert isinstance(t, RandomHorizontalFlip | RandomVerticalFlip)
    if numbers[0] >= t.p:
        return rgb
    return rgb[:, ::-1] if isinstance(t, RandomHorizontalFlip) else rgb[::-1]


SIDE = st.integers(1, 70)
SIZE = st.one_of(SIDE, st.tuples(SIDE, SIDE))
TRANSFORM = st.one_of(
    st.builds(RandomResizedCrop, SIZE),
    st.builds(RandomResizedCrop, SIZE, st.just((0.5, 2.0)), st.just((0.1, 10.0))),
    st.builds(CenterCrop, SIZE),
    st.builds(Resize, SIZE),
    st.builds(lambda size, more: Resize(size, max_size=size + more), SIDE, st.integers(1, 60)),
    st.builds(RandomHorizontalFlip, st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(RandomVerticalFlip, st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(Letterbox, SIZE, st.sampled_from([0, 114, (1, 2, 200)])),
)
CHAIN = st.lists(TRANSFORM, min_size=1, max_size=5)


@settings(max_examples=400)
@given(chain=CHAIN, width=st.integers(1, 90), height=st.integers(1, 90), seed=st.integers(0, 1000))
@example(chain=[Resize(40), CenterCrop(33)], width=90, height=70, seed=0)
@example(chain=[Letterbox(60), RandomResizedCrop(20), RandomHorizontalFlip(1.0)], width=90, height=20, seed=1)
@example(chain=[CenterCrop(80), Letterbox((20, 50)), CenterCrop(60)], width=33, height=90, seed=0)
def test_any_chain_is_what_one_step_after_the_other_gives(
    chain: list[Geometric], width: int, height: int, seed: int
) -> None:
    rgb = images.photo(width, height, seed % 7)
    pipeline = Pipeline(chain)
    row = pipeline.numbers(seed, 0, [0])[0].tolist()
    plan, start, expected = pipeline.plan((height, width), row), 0, rgb
    for t in chain:
        expected = by_hand(t, expected, row[start : start + t.draws])
        start += t.draws
    got = render_array(rgb, plan)
    assert plan.out_size == got.shape[:2]
    assert pipeline.size in (None, got.shape[:2])
    resizes = sum(not isinstance(t, CenterCrop | RandomHorizontalFlip | RandomVerticalFlip) for t in chain)
    assert got.shape == expected.shape
    # Within 2 levels of Pillow for one resize; what later ones make of a difference stays of that order.
    assert int(np.abs(got.astype(int) - expected).max(initial=0)) <= 2 * max(resizes, 1)


@settings(max_examples=200)
@given(chain=CHAIN, width=st.integers(1, 90), height=st.integers(1, 90), seed=st.integers(0, 1000))
def test_nothing_but_what_is_needed_counts(chain: list[Geometric], width: int, height: int, seed: int) -> None:
    pipeline = Pipeline(chain)
    plan = pipeline.plan((height, width), pipeline.numbers(seed, 0, [0])[0].tolist())
    first = plan
    if plan.before is not None:
        first = fastdata.transforms.plan.stages(plan)[0]
    x0, y0, x1, y1 = needed(first)
    rgb = images.photo(width, height)
    other = np.random.default_rng(0).integers(0, 256, rgb.shape, np.uint8)
    other[y0:y1, x0:x1] = rgb[y0:y1, x0:x1]
    np.testing.assert_array_equal(render_array(rgb, plan), render_array(other, plan))


@settings(max_examples=200)
@given(chain=CHAIN, width=st.integers(1, 90), height=st.integers(1, 90), seed=st.integers(0, 1000))
def test_a_mask_goes_where_its_image_goes(chain: list[Geometric], width: int, height: int, seed: int) -> None:
    """Two halves of flat colour: away from their border, mask and image name the same half."""
    mask = np.zeros((height, width), np.int32)
    mask[:, width // 2 :] = 1
    mask[height // 3 :] += 2
    palette = np.array([[10, 10, 10], [250, 10, 10], [10, 250, 10], [10, 10, 250]], np.uint8)
    pipeline = Pipeline(chain)
    plan = pipeline.plan((height, width), pipeline.numbers(seed, 0, [0])[0].tolist())
    image, mapped = render_array(palette[mask], plan), apply_to_mask(plan, mask, fill=-1)
    assert mapped.shape == image.shape[:2]
    assert mapped.dtype == mask.dtype
    seen = np.where(mapped[..., None] >= 0, palette[mapped], 0)
    flat = [(np.abs(image.astype(int) - color) <= 1).all(axis=2) for color in palette]
    pure = np.logical_or.reduce(flat) & (mapped >= 0)
    assert (np.abs(image.astype(int) - seen).max(axis=2)[pure] <= 1).all()


@settings(max_examples=200)
@given(chain=CHAIN, seed=st.integers(0, 1000))
def test_boxes_go_where_their_pixels_go(chain: list[Geometric], seed: int) -> None:
    """A box around the ones of a mask stays around them, within the pixel that resizing rounds by."""
    width, height = 80, 60
    mask = np.zeros((height, width), np.uint8)
    mask[20:45, 10:50] = 1
    pipeline = Pipeline(chain)
    plan = pipeline.plan((height, width), pipeline.numbers(seed, 0, [0])[0].tolist())
    (x0, y0, x1, y1), outside = apply_to_boxes(plan, [[10, 20, 50, 45], [-9, -9, -1, -1]])
    ys, xs = np.nonzero(apply_to_mask(plan, mask))
    out_height, out_width = plan.out_size
    assert 0 <= x0 <= x1 <= out_width
    assert 0 <= y0 <= y1 <= out_height
    assert outside[0] == outside[2] or outside[1] == outside[3]
    if len(xs):
        stages = sum(not isinstance(t, RandomHorizontalFlip | RandomVerticalFlip) for t in chain)
        for got, seen in ((x0, xs.min()), (y0, ys.min()), (x1, xs.max() + 1), (y1, ys.max() + 1)):
            grown = max(out_width / width, out_height / height, 1)
            assert abs(got - seen) <= max(stages, 1) * 12 * grown


def test_boxes_by_numbers() -> None:
    plan = Plan.whole((50, 100)).crop((20, 10, 60, 50)).resize((80, 80)).flip(x=True).pad((90, 100), 10, 5, (0, 0, 0))
    got = apply_to_boxes(plan, [(20, 10, 40, 30), (0, 0, 30, 100), (70, 0, 90, 5)])
    np.testing.assert_allclose(got, [[50, 5, 90, 45], [70, 5, 90, 85], [10, 5, 10, 5]])
    assert apply_to_boxes(plan, []).shape == (0, 4)
    with pytest.raises(OptionError, match="N x 4"):
        apply_to_boxes(plan, [1, 2, 3])
    with pytest.raises(OptionError, match=r"mask is 3 x 2, its image 100 x 50"):
        apply_to_mask(plan, np.zeros((2, 3)))


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (10, 1000), (1000, 10), (1, 1), (3, 2)])
def test_random_crops_are_torchvision_s(size: tuple[int, int]) -> None:
    t = RandomResizedCrop((24, 36))
    numbers = Pipeline(t).numbers(0, 0, np.arange(300)).tolist()
    for row in numbers:
        plan = t.apply_to(Plan.whole(size[::-1]), row)
        x, y, w, h = crop_params(t, *size, row)
        assert plan.box == (x, y, x + w, y + h)
        assert plan.size == (24, 36)


def test_random_crops_fill_their_ranges() -> None:
    t = RandomResizedCrop(24)
    rows = Pipeline(t).numbers(0, 0, np.arange(4000)).tolist()
    sizes = np.array([t.apply_to(Plan.whole((1000, 1000)), row).region for row in rows])
    shares, ratios = sizes.prod(axis=1) / 1e6, sizes[:, 1] / sizes[:, 0]
    assert 0.079 < shares.min() < 0.09
    assert shares.max() > 0.97
    assert 0.749 < ratios.min() < 0.755
    assert 1.325 < ratios.max() < 1.335
    assert abs(np.median(np.log(ratios))) < 0.02
    corners = np.array([t.apply_to(Plan.whole((1000, 1000)), row).box for row in rows])
    assert corners[:, :2].min() == 0
    assert corners[:, 2:].max() == 1000


def test_numbers_belong_to_seed_epoch_and_index() -> None:
    pipeline = Pipeline([RandomResizedCrop(8), RandomHorizontalFlip()])
    rows = pipeline.numbers(3, 1, [5, 6, 7])
    assert rows.shape == (3, pipeline.draws)
    np.testing.assert_array_equal(pipeline.numbers(3, 1, [6]), rows[1:2])
    assert len({tuple(pipeline.numbers(*key)[0]) for key in [(3, 1, [5]), (3, 2, [5]), (4, 1, [5]), (3, 1, [6])]}) == 4
    assert ((rows >= 0) & (rows < 1)).all()


def test_linear_without_antialias() -> None:
    rgb = images.photo(90, 70)
    for t, size in ((Resize((20, 30), antialias=False), (30, 20)), (Resize(35, antialias=False), (45, 35))):
        np.testing.assert_array_equal(t(rgb), cv2.resize(rgb, size, interpolation=cv2.INTER_LINEAR))
    both = Pipeline([Resize(35, antialias=False), CenterCrop(20)])
    got = render_array(rgb, both.plan((70, 90), []))
    np.testing.assert_array_equal(got, cv2.resize(rgb, (45, 35))[8:28, 12:32])


def test_a_second_resize_is_a_stage_of_its_own() -> None:
    plan = Plan.whole((80, 100)).resize((40, 50)).crop((5, 5, 25, 25)).resize((10, 10))
    assert plan.before is not None
    assert plan.source == (20, 20)
    assert plan.first.source == (80, 100)
    assert needed(plan.before) == (8, 8, 52, 52)
    assert Plan.whole((80, 100)).crop((0, 0, 50, 40)).resize((40, 50)) == Plan.whole((80, 100)).crop((0, 0, 50, 40))


def test_what_torchvision_takes_is_taken() -> None:
    plan = Plan.whole((40, 80))
    assert fastdata.Resize(None, max_size=20).apply_to(plan, []).out_size == (10, 20)
    assert fastdata.Resize(None, max_size=20).size_after(Size(81, 40)) == (20, 9)
    crop = fastdata.RandomResizedCrop(8, scale=(0.0, 1.0), interpolation="bilinear")
    assert crop.apply_to(plan, [0.0] * 5).out_size == (8, 8)
    assert crop == fastdata.RandomResizedCrop(8, scale=(0.0, 1.0), interpolation=2)
    for wrong in ({"size": None}, {"size": 8, "interpolation": 3}, {"size": 8, "interpolation": "bicubic"}):
        with pytest.raises(fastdata.OptionError, match=r"max_size|interpolation must be 'bilinear'"):
            fastdata.Resize(**wrong)
