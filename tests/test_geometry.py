"""Conversion's resize modes as plans: the five modes by example, and what must hold for every size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.converters.options import RESIZE_MODES, RecodeOptions
from fastdata.converters.resizing import HEADROOM, resize_plan, transforms_for
from fastdata.size import Size
from fastdata.transforms import CenterCrop, Letterbox, Plan, Resize
from fastdata.transforms.plan import reduction

sizes = st.builds(Size, st.integers(1, 70_000), st.integers(1, 70_000))
sides = st.integers(1, 4_096)
modes = st.sampled_from(RESIZE_MODES)

Box = tuple[int, int, int, int]


def planned(size: Size, side: int, mode: str, *, upscale: bool = False) -> Plan:
    # As many pixels as a mode may come to: what is refused is tested by itself.
    return resize_plan(size, RecodeOptions(resize=side, resize_mode=mode, upscale=upscale, max_pixels=10**15))


@pytest.mark.parametrize(
    ("size", "mode", "upscale", "resized", "window"),
    [
        ((427, 640), "shorter", False, (256, 383), None),
        ((640, 427), "shorter", False, (383, 256), None),
        ((427, 640), "longer", False, (170, 256), None),
        ((3, 5000), "longer", False, (1, 256), None),
        ((100, 200), "shorter", False, (100, 200), None),
        ((100, 200), "shorter", True, (256, 512), None),
        ((100, 300), "longer", False, (85, 256), None),
        ((100, 200), "longer", False, (100, 200), None),
        ((100, 256), "longer", True, (100, 256), None),
        ((427, 640), "exact", False, (256, 256), None),
        ((20, 10), "exact", False, (256, 256), None),
        ((256, 256), "exact", False, (256, 256), None),
        ((427, 640), "crop", False, (256, 383), (64, 0, 320, 256)),
        ((256, 256), "crop", False, (256, 256), None),
        ((50, 100), "crop", False, (256, 512), (128, 0, 384, 256)),
    ],
)
def test_plan_by_example(
    size: tuple[int, int], mode: str, upscale: bool, resized: tuple[int, int], window: Box | None
) -> None:
    plan = planned(Size(*size), 256, mode, upscale=upscale)
    assert (plan.size, plan.window, plan.canvas) == (resized, window, None)
    assert plan.changes == (plan.out_size != size)


@pytest.mark.parametrize(
    ("size", "upscale", "resized", "corner"),
    [
        ((427, 640), False, (170, 256), (0, 43)),
        ((50, 100), False, (50, 100), (78, 103)),
        ((50, 100), True, (128, 256), (0, 64)),
        ((100, 256), False, (100, 256), (0, 78)),
    ],
)
def test_pad_by_example(
    size: tuple[int, int], upscale: bool, resized: tuple[int, int], corner: tuple[int, int]
) -> None:
    plan = planned(Size(*size), 256, "pad", upscale=upscale)
    assert plan.size == resized
    assert plan.canvas is not None
    assert (plan.canvas.size, plan.canvas.x, plan.canvas.y) == ((256, 256), *corner)
    assert not planned(Size(256, 256), 256, "pad").changes


def test_without_an_unscaled_crop_nothing_is_resampled() -> None:
    plan = planned(Size(300, 256), 256, "crop")
    assert not plan.resizes
    assert plan.box == (0, 22, 256, 278)


def test_modes_are_fastdata_s_transforms() -> None:
    made = {
        mode: transforms_for(RecodeOptions(resize=9, resize_mode=mode, pad_color=(1, 2, 3))) for mode in RESIZE_MODES
    }
    assert made == {
        "shorter": (Resize(9),),
        "longer": (Resize(None, max_size=9),),
        "exact": (Resize((9, 9)),),
        "crop": (Resize(9), CenterCrop(9)),
        "pad": (Letterbox(9, fill=(1, 2, 3)),),
    }


@given(sizes, sides, modes, st.booleans())
def test_the_side_asked_for_is_exact_and_none_is_under_one(size: Size, side: int, mode: str, upscale: bool) -> None:
    out = planned(size, side, mode, upscale=upscale).out_size
    assert min(out) >= 1
    if mode in ("exact", "crop", "pad"):
        assert out == (side, side)
    else:
        known = min if mode == "shorter" else max
        smaller = known(size) < side
        assert known(out) == (known(size) if smaller and not upscale else side)


@given(sizes, sides, modes, st.booleans())
def test_the_aspect_is_kept_within_a_pixel(size: Size, side: int, mode: str, upscale: bool) -> None:
    plan = planned(size, side, mode, upscale=upscale)
    if not plan.resizes or mode == "exact":
        return
    known = min if mode in ("shorter", "crop") else max
    scale = known(plan.size) / known(size)
    assert abs(plan.size.width - size.width * scale) <= 1
    assert abs(plan.size.height - size.height * scale) <= 1


@given(sizes, sides, modes, st.booleans())
def test_cuts_and_pads_are_centred(size: Size, side: int, mode: str, upscale: bool) -> None:
    plan = planned(size, side, mode, upscale=upscale)
    assert plan.window is None or plan.canvas is None
    if plan.window is not None:
        x0, y0, x1, y1 = plan.window
        assert abs(x0 - (plan.size.width - x1)) <= 1
        assert abs(y0 - (plan.size.height - y1)) <= 1
    if plan.canvas is not None:
        assert abs(side - plan.size.width - 2 * plan.canvas.x) <= 1
        assert abs(side - plan.size.height - 2 * plan.canvas.y) <= 1


@given(sizes, sides, modes)
def test_a_turned_image_gets_the_turned_plan(size: Size, side: int, mode: str) -> None:
    plan, turned = planned(size, side, mode), planned(Size(size.width, size.height), side, mode)
    assert turned.size == plan.size[::-1]
    assert turned.out_size == plan.out_size[::-1]
    assert turned.box == (plan.box[1], plan.box[0], plan.box[3], plan.box[2])


@given(sizes, sides, modes, st.sampled_from([1, HEADROOM, 3]))
def test_a_reduced_decode_leaves_its_headroom(size: Size, side: int, mode: str, headroom: int) -> None:
    plan = planned(size, side, mode)
    (height, width), (region_height, region_width) = plan.size, plan.region
    scale = reduction(plan, headroom=headroom)
    assert scale in (1, 2, 4, 8)
    if scale > 1:
        assert region_width // scale >= headroom * width
        assert region_height // scale >= headroom * height
    larger = 2 * scale
    if larger <= 8:
        assert region_width // larger < headroom * width or region_height // larger < headroom * height
