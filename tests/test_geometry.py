"""Resize plans: the five modes by example, and what must hold for every size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.converters.geometry import RESIZE_MODES, ResizePlan, plan_resize, reduced_region, reduction

sizes = st.integers(1, 70_000)
sides = st.integers(1, 4_096)
modes = st.sampled_from(RESIZE_MODES)


@pytest.mark.parametrize(
    ("size", "mode", "upscale", "plan"),
    [
        ((640, 427), "shorter", False, ResizePlan(383, 256, 383, 256)),
        ((427, 640), "shorter", False, ResizePlan(256, 383, 256, 383)),
        ((640, 427), "longer", False, ResizePlan(256, 170, 256, 170)),
        ((5000, 3), "longer", False, ResizePlan(256, 1, 256, 1)),
        ((200, 100), "shorter", False, None),
        ((200, 100), "shorter", True, ResizePlan(512, 256, 512, 256)),
        ((300, 100), "longer", False, ResizePlan(256, 85, 256, 85)),
        ((200, 100), "longer", False, None),
        ((256, 100), "longer", True, None),
        ((640, 427), "exact", False, ResizePlan(256, 256, 256, 256)),
        ((10, 20), "exact", False, ResizePlan(256, 256, 256, 256)),
        ((256, 256), "exact", False, None),
        ((640, 427), "crop", False, ResizePlan(383, 256, 256, 256, 64, 0)),
        ((256, 300), "crop", False, ResizePlan(256, 300, 256, 256, 0, 22)),
        ((256, 256), "crop", False, None),
        ((100, 50), "crop", False, ResizePlan(512, 256, 256, 256, 128, 0)),
        ((640, 427), "pad", False, ResizePlan(256, 170, 256, 256, 0, 43)),
        ((100, 50), "pad", False, ResizePlan(100, 50, 256, 256, 78, 103)),
        ((100, 50), "pad", True, ResizePlan(256, 128, 256, 256, 0, 64)),
        ((256, 256), "pad", False, None),
    ],
)
def test_plan_by_example(size: tuple[int, int], mode: str, upscale: bool, plan: ResizePlan | None) -> None:
    assert plan_resize(*size, 256, mode, upscale=upscale) == plan


@given(sizes, sizes, sides, modes, st.booleans())
def test_the_side_asked_for_is_exact_and_none_is_under_one(
    width: int, height: int, side: int, mode: str, upscale: bool
) -> None:
    plan = plan_resize(width, height, side, mode, upscale=upscale)
    out = (plan.out_width, plan.out_height) if plan else (width, height)
    assert min(out) >= 1
    if mode in ("exact", "crop", "pad"):
        assert out == (side, side)
    else:
        known = min if mode == "shorter" else max
        smaller = known(width, height) < side
        assert known(out) == (known(width, height) if smaller and not upscale else side)
        assert (out == (width, height)) == (plan is None)


@given(sizes, sizes, sides, modes, st.booleans())
def test_the_aspect_is_kept_within_a_pixel(width: int, height: int, side: int, mode: str, upscale: bool) -> None:
    plan = plan_resize(width, height, side, mode, upscale=upscale)
    if plan is None or mode == "exact":
        return
    known = min if mode in ("shorter", "crop") else max
    scale = known(plan.width, plan.height) / known(width, height)
    assert abs(plan.width - width * scale) <= 1
    assert abs(plan.height - height * scale) <= 1


@given(sizes, sizes, sides, modes, st.booleans())
def test_cuts_and_pads_are_centred(width: int, height: int, side: int, mode: str, upscale: bool) -> None:
    plan = plan_resize(width, height, side, mode, upscale=upscale)
    if plan is None:
        return
    assert not (plan.crops and plan.pads)
    assert abs(abs(plan.width - plan.out_width) - 2 * plan.left) <= 1
    assert abs(abs(plan.height - plan.out_height) - 2 * plan.top) <= 1


@given(sizes, sizes, sides, modes)
def test_a_turned_picture_gets_the_turned_plan(width: int, height: int, side: int, mode: str) -> None:
    plan, turned = plan_resize(width, height, side, mode), plan_resize(height, width, side, mode)
    assert (plan is None) == (turned is None)
    if plan is not None and turned is not None:
        assert turned == ResizePlan(plan.height, plan.width, plan.out_height, plan.out_width, plan.top, plan.left)


@given(sizes, sizes, sides, modes)
def test_a_reduced_decode_leaves_twice_the_target(width: int, height: int, side: int, mode: str) -> None:
    plan = plan_resize(width, height, side, mode)
    if plan is None:
        return
    scale = reduction(width, height, plan)
    assert scale in (1, 2, 4, 8)
    if scale > 1:
        assert width // scale >= 2 * plan.width
        assert height // scale >= 2 * plan.height
    larger = {1: 2, 2: 4, 4: 8, 8: 8}[scale]
    if larger != scale:
        assert width // larger < 2 * plan.width or height // larger < 2 * plan.height


@given(sizes, sizes, st.sampled_from((2, 4, 8)), st.integers(1, 8))
def test_a_reduced_picture_lies_within_its_pixels(width: int, height: int, scale: int, orientation: int) -> None:
    x0, y0, x1, y1 = reduced_region(width, height, scale, orientation)
    assert 0 <= x0 < 1
    assert 0 <= y0 < 1
    assert (x1 - x0, y1 - y0) == (width / scale, height / scale)
    assert x1 <= -(-width // scale)
    assert y1 <= -(-height // scale)
