"""Resizing: exactly the size asked for, and Pillow's pixels within two levels, in both engines."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastdata.errors import OptionError
from fastdata.transforms import CenterCrop, Letterbox, Pipeline, Resize, engines, resample
from fastdata.transforms.engines import best_engine
from fastdata.transforms.render import render_array
from fastdata.transforms.resample import ResampleRules
from tests import images, likeness, needs

RGB = NDArray[np.uint8]
SIDES = st.integers(1, 90)


def resize(rgb: RGB, size: tuple[int, int]) -> RGB:
    return Resize(size)(rgb)


def pillow(rgb: RGB, width: int, height: int) -> RGB:
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BILINEAR))


@pytest.fixture(params=["cykooz", "pillow"])
def own_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engines that need no torch, in turn; one that is not installed is skipped."""
    if request.param == "cykooz":
        needs.package("cykooz_resizer")
    rules = ResampleRules(getattr(engines, request.param)())
    monkeypatch.setattr(resample, "default_rules", lambda: rules)
    return str(request.param)


@pytest.mark.parametrize(
    "sizes",
    [(500, 375, 341, 256), (300, 200, 300, 20), (200, 300, 20, 300), (64, 48, 1, 1), (7, 5, 3, 2), (1000, 3, 10, 1),
     (40, 40, 39, 39), (40, 40, 20, 20), (3000, 10, 30, 10)],
)  # fmt: skip
def test_shrinking_is_pillow_s(own_engine: str, sizes: tuple[int, int, int, int]) -> None:
    old_width, old_height, width, height = sizes
    rgb = images.photo(old_width, old_height)
    assert likeness.distance(resize(rgb, (height, width)), pillow(rgb, width, height)) <= 2


@pytest.mark.parametrize("sizes", [(40, 30, 20, 60), (40, 30, 80, 7), (300, 2, 100, 50), (2, 300, 50, 299)])
def test_one_side_may_shrink_while_the_other_grows(own_engine: str, sizes: tuple[int, int, int, int]) -> None:
    old_width, old_height, width, height = sizes
    rgb = images.photo(old_width, old_height)
    assert likeness.distance(resize(rgb, (height, width)), pillow(rgb, width, height)) <= 2


@given(width=SIDES, height=SIDES, new_width=SIDES, new_height=SIDES, seed=st.integers(0, 9))
def test_any_size(width: int, height: int, new_width: int, new_height: int, seed: int) -> None:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    before = rgb.copy()
    got = resize(rgb, (new_height, new_width))
    assert got.shape == (new_height, new_width, 3)
    assert likeness.distance(got, pillow(rgb, new_width, new_height)) <= 2
    np.testing.assert_array_equal(rgb, before)


def test_a_checkerboard_becomes_gray(own_engine: str) -> None:
    board = (np.indices((512, 512)).sum(0) % 2 * 255).astype(np.uint8)
    got = resize(np.dstack([board] * 3), (170, 170))
    assert got.std() < 2


@pytest.mark.parametrize("size", [(20, 15), (40, 30), (39, 31), (80, 60), (40, 60)])
def test_the_result_belongs_to_the_caller(own_engine: str, size: tuple[int, int]) -> None:
    rgb = images.photo(40, 30)
    before = rgb.copy()
    got = resize(rgb, size)
    assert got.flags.c_contiguous
    assert got.flags.writeable
    got[:] = 0
    np.testing.assert_array_equal(rgb, before)


@pytest.mark.parametrize("layout", ["steps", "fortran", "turned"])
@pytest.mark.parametrize("size", [(9, 8), (90, 80)])
def test_any_memory_layout_will_do(own_engine: str, layout: str, size: tuple[int, int]) -> None:
    rgb = images.laid_out(images.photo(40, 60), layout)
    rgb.flags.writeable = False
    assert likeness.distance(resize(rgb, size), pillow(np.ascontiguousarray(rgb), *size[::-1])) <= 2


def test_threads_do_not_disturb_each_other(own_engine: str) -> None:
    photos = [images.photo(120, 90, seed) for seed in range(4)]
    wanted = [resize(rgb, (40, 50)) for rgb in photos]
    failed = []

    def work(number: int) -> None:
        for _ in range(20):
            if not np.array_equal(resize(photos[number], (40, 50)), wanted[number]):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_the_engine_is_named() -> None:
    name, version = best_engine(torch=False).name.split(" ")
    assert name in ("cykooz-resizer", "pillow")
    assert version[0].isdigit()


def test_pillow_stands_in_where_the_wheel_is_missing_and_torch_is_not_to_be_imported() -> None:
    code = """
import sys
sys.modules["cykooz_resizer"] = None
import numpy as np
from fastdata.transforms import Plan
from fastdata.transforms.engines import best_engine
from fastdata.transforms.render import render_array
assert "PIL" not in sys.modules
engine = best_engine(torch=False)
assert "torch" not in sys.modules
print(engine.name)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("pillow ")


def test_what_makes_no_sense_is_refused() -> None:
    rgb = images.photo(4, 4)
    for size in ((0, 4), (4, 0), (-1, 4)):
        with pytest.raises(OptionError, match="from 1 to"):
            resize(rgb, size)
    for array in (rgb[..., 0], np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), rgb[:0]):
        with pytest.raises(OptionError, match="H x W x 3"):
            resize(array, (2, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (2, 900), (7, 1100)])
def test_of_a_long_strip_only_the_window_is_made(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the levels by which filters differ, it has the pixels that making all of it and cutting gives."""
    rgb, rules = images.photo(size[1], size[0]), best_engine(torch=False)
    plan = Pipeline([Resize(40), CenterCrop(40)]).plan(size, [])
    whole = ResampleRules(rules)
    little = ResampleRules(rules, max_pixels=100)
    assert whole.resizer(plan).startswith("opencv ")
    assert little.resizer(plan).startswith("pillow ")
    expected = render_array(rgb, plan, resampling=whole)
    monkeypatch.setattr(resample, "_linear", None)
    assert likeness.distance(render_array(rgb, plan, resampling=little), expected) <= 2


def test_what_resizes_is_named() -> None:
    rules = ResampleRules(engines.pillow(), max_pixels=1)
    plan = Pipeline(Resize((40, 40))).plan
    assert rules.resizer(plan((40, 40), [])) == ""
    assert rules.resizer(plan((20, 80), [])).startswith("pillow ")
    assert rules.resizer(plan((20, 20), [])).startswith("opencv ")
    assert rules.resizer(Pipeline(Resize((4, 4), antialias=False)).plan((20, 20), [])).startswith("opencv ")
    assert rules.resizer(Pipeline(Letterbox(90)).plan((90, 20), [])) == ""
