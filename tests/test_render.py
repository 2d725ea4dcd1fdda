"""Rendering: one image gives the same pixels by every path, and no more is decoded than its plan needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastdata.codec import jpeg
from fastdata.codec.decode import Rules, decode
from fastdata.codec.encode import encode
from fastdata.codec.encoded import raw_view
from fastdata.errors import CutError, DecodeError, OptionError, TooLargeError
from fastdata.transforms import (
    CenterCrop,
    Letterbox,
    Pipeline,
    Plan,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    engines,
    resample,
)
from fastdata.transforms.render import render, render_array
from tests import images, needs
from tests.test_cropindex import made, without_index

RGB = NDArray[np.uint8]
ODD = images.odd_images()
TRAIN = [RandomResizedCrop(48), RandomHorizontalFlip()]

CHAINS = {
    "train": TRAIN,
    "train linear": [RandomResizedCrop(48, antialias=False), RandomHorizontalFlip()],
    "train large": [RandomResizedCrop(150), RandomVerticalFlip()],
    "eval": [Resize(60), CenterCrop(48)],
    "eval linear": [Resize(60, antialias=False), CenterCrop(48)],
    "eval, nothing to resize": [CenterCrop(64), RandomHorizontalFlip(1.0)],
    "padded": [CenterCrop(300)],
    "letterbox": [RandomVerticalFlip(1.0), Letterbox((40, 70))],
    "two resizes": [Resize(100), RandomResizedCrop(30), RandomHorizontalFlip()],
    "nothing": [],
}


class Planned(Pipeline):
    """Plans by a function of the size."""

    def __init__(self, plan_of: Callable[[Any], Plan]) -> None:
        super().__init__()
        self._plan_of = plan_of

    def plan(self, size: Any, row: Any) -> Plan:
        return self._plan_of(size)


def bare(data: bytes) -> bytes:
    """The same image without index and restart markers: the same entropy-coded data cannot be had, PNG can."""
    return images.png(decode(data))


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=40)
@given(width=st.integers(1, 200), height=st.integers(1, 200), seed=st.integers(0, 100),
       sampling=st.sampled_from(["420", "422", "444", "440", "411", "gray"]))  # fmt: skip
def test_every_path_gives_the_same_pixels(chain: str, width: int, height: int, seed: int, sampling: str) -> None:
    data = made(width, height, sampling, seed=seed % 5)
    pipeline = Pipeline(CHAINS[chain])
    row = pipeline.numbers(seed, 0, [0])[0].tolist()
    exact = pipeline.render(data, row, exact=True)
    np.testing.assert_array_equal(pipeline.render(memoryview(without_index(data)), row, exact=True), exact)
    np.testing.assert_array_equal(pipeline.render(bare(data), row), exact)
    np.testing.assert_array_equal(pipeline.render(images.npy(decode(data)), row), exact)
    np.testing.assert_array_equal(render_array(decode(data), pipeline.plan((height, width), row)), exact)


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=40)
@given(width=st.integers(1, 700), height=st.integers(1, 700), seed=st.integers(0, 100))
@example(width=240, height=320, seed=0)  # at 1/4 nothing is left for "eval" to resize
def test_a_scale_gives_the_same_pixels_by_index_and_whole(chain: str, width: int, height: int, seed: int) -> None:
    data = made(width, height)
    pipeline = Pipeline(CHAINS[chain])
    row = pipeline.numbers(seed, 0, [0])[0].tolist()
    with pytest.MonkeyPatch.context() as patch:
        got = pipeline.render(data, row)
        patch.setattr("fastdata.codec.encoded.load", lambda data: None)
        np.testing.assert_array_equal(pipeline.render(data, row), got)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[int, ...]]]:
    """Scale and shape of whatever is decoded from JPEG."""
    seen: list[tuple[int, tuple[int, ...]]] = []
    inner = jpeg.pixels

    def pixels(data: Any, scale: int = 1, *rest: Any) -> RGB | None:
        out = inner(data, scale, *rest)
        assert out is not None
        seen.append((scale, out.shape))
        return out

    monkeypatch.setattr(jpeg, "pixels", pixels)
    return seen


@pytest.mark.parametrize(
    ("target", "scale"), [(100, 2), (128, 2), (64, 4), (65, 2), (32, 8), (20, 8), (129, 1), (256, 1), (300, 1)]
)
def test_the_scale_leaves_at_least_the_target(
    target: int, scale: int, decoded: list[tuple[int, tuple[int, ...]]]
) -> None:
    data = made(256, 300)
    render(data, Planned(lambda size: Plan.whole(size).resize((target, target))))
    render(data, Planned(lambda size: Plan.whole(size).resize((target, target))), exact=True)
    assert [one[0] for one in decoded] == [scale, 1]


@pytest.mark.parametrize("size", [(512, 384), (509, 387), (1031, 771)])
@pytest.mark.parametrize("turn", range(1, 9))
def test_a_scale_moves_nothing(size: tuple[int, int], turn: int) -> None:
    """By one of the reduced pixels or more; also where the image is turned, and its sides are no multiples."""
    rgb = cv2.GaussianBlur(images.photo(*size), (0, 0), 6)
    data = images.turned(rgb, turn, quality=95, subsampling=0)
    whole = decode(data)
    for box in ((0, 0, size[0], size[1]), (101, 53, 501, 363)):
        plan = Plan.whole(size[::-1]).crop(box).resize((48, 64))
        expected = render_array(whole, plan)
        got = render(data, Planned(lambda _size, plan=plan: plan))  # type: ignore[misc]
        assert np.abs(got.astype(int) - expected).mean() < 0.6
        assert np.abs(got.astype(int) - expected).max() <= 6
        np.testing.assert_array_equal(render(data, Planned(lambda _size, plan=plan: plan), exact=True), expected)  # type: ignore[misc]


def test_only_what_is_needed_is_decoded(decoded: list[tuple[int, tuple[int, ...]]]) -> None:
    data = encode(images.photo(640, 480), "jpg")
    render(data, Planned(lambda size: Plan.whole(size).crop((100, 100, 180, 150)).resize((200, 200))))
    # Intervals of 5 and rows of 1 MCU of 16 pixels around the box and its margin of one pixel.
    assert decoded[-1] == (1, (64, 160, 3))
    if engines.best_engine().regions:
        render(data, Planned(lambda size: Plan.whole(size).resize((360, 480)).crop((200, 150, 280, 210))))
        assert decoded[-1][1][0] <= 128
    render(data, Planned(lambda size: Plan.whole(size).crop((10, 10, 10, 10)).pad((5, 5), 0, 0, (1, 2, 3))))
    assert len(decoded) == 2  # nothing is decoded for nothing


@pytest.mark.parametrize("name", ODD)
def test_every_kind_is_rendered_as_it_is_decoded(name: str) -> None:
    data, _ = ODD[name]
    try:
        expected = decode(data)
    except DecodeError as error:
        with pytest.raises(type(error)):
            render(data, Pipeline())
        return
    np.testing.assert_array_equal(render(data, Pipeline()), expected)
    plan = Pipeline([Resize(21), CenterCrop(17), RandomHorizontalFlip(1)]).plan
    size = expected.shape[:2]
    got = render(memoryview(data), Planned(lambda size: plan(size, [0])), exact=True)
    np.testing.assert_array_equal(got, render_array(expected, plan(size, [0])))


@pytest.mark.parametrize("chain", CHAINS)
def test_pixels_go_into_the_place_given_and_nowhere_else(chain: str) -> None:
    data, pipeline = made(180, 140), Pipeline(CHAINS[chain])
    for number in range(4):
        row = pipeline.numbers(0, 0, [number])[0].tolist()
        expected = pipeline.render(data, row)
        batch = np.full((3, *expected.shape), 77, np.uint8)
        place = batch[1]
        assert pipeline.render(data, row, out=place) is place
        np.testing.assert_array_equal(batch[1], expected)
        assert (batch[[0, 2]] == 77).all()
        assert expected.flags.writeable
        assert expected.flags.c_contiguous


@pytest.mark.parametrize("out", [np.zeros((48, 47, 3), np.uint8), np.zeros((48, 48, 3), np.int8),
                                 np.zeros((48, 50, 3), np.uint8)[:, :48]], ids=["shape", "type", "layout"])  # fmt: skip
def test_a_place_that_does_not_fit_is_refused(out: Any) -> None:
    pipeline = Pipeline(RandomResizedCrop(48))
    with pytest.raises(OptionError, match="the plan gives 48 x 48 x 3 uint8 pixels"):
        pipeline.render(made(180, 140), [0.5] * 5, out=out)


def test_raw_pixels_are_read_where_they_lie() -> None:
    rgb = images.photo(90, 70)
    data = memoryview(images.npy(rgb))
    view = raw_view(data)
    assert view is not None
    assert np.shares_memory(view, np.frombuffer(data, np.uint8))
    np.testing.assert_array_equal(view, rgb)
    for chain in CHAINS.values():
        pipeline = Pipeline(chain)
        row = pipeline.numbers(0, 0, [1])[0].tolist()
        got = pipeline.render(data, row)
        np.testing.assert_array_equal(got, render_array(rgb, pipeline.plan((70, 90), row)))
        assert not np.shares_memory(got, view)
    assert raw_view(images.npy(rgb[..., 0])) is None
    assert raw_view(images.npy(np.asfortranarray(rgb))) is None
    assert raw_view(data[:-1]) is None
    with pytest.raises(CutError):
        render(data[:-1], Pipeline())
    with pytest.raises(TooLargeError):
        render(data, Pipeline(), rules=Rules(max_pixels=6299))


def test_the_rules_hold_for_cut_images_too() -> None:
    data = made(180, 140)
    with pytest.raises(TooLargeError, match="180 x 140"):
        render(data, Planned(lambda size: Plan.whole(size).crop((0, 0, 8, 8))), rules=Rules(max_pixels=180 * 140 - 1))
    short = data[: len(data) * 2 // 3]
    with pytest.raises(CutError):
        render(short, Planned(lambda size: Plan.whole(size).crop((0, 0, 8, 8))))
    kept = render(short, Planned(lambda size: Plan.whole(size).crop((0, 0, 64, 64))), rules=Rules(keep_damaged=True))
    np.testing.assert_array_equal(kept, decode(data)[:64, :64])


def test_another_size_than_the_header_s_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rgb = images.photo(50, 40)
    monkeypatch.setattr("fastdata.codec.encoded.decode", lambda *_, **__: rgb)
    got = render(images.png(images.photo(60, 30)), Pipeline())
    np.testing.assert_array_equal(got, rgb)


def pillow(rgb: RGB, size: tuple[int, int]) -> RGB:
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR))


ENGINES = {"cykooz": "cykooz_resizer", "pytorch": "torch", "pillow": "PIL"}


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_pillow_s_filter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.package(ENGINES[name])
    made_engine = getattr(engines, name)()
    monkeypatch.setattr(resample, "default_rules", lambda: resample.ResampleRules(made_engine))
    assert made_engine.name.split()[0].startswith(name[:5] if name != "pytorch" else "torch")
    rgb = images.photo(333, 257)
    rgb.flags.writeable = False
    for width, height in ((100, 80), (332, 256), (400, 100), (50, 300), (7, 5), (1, 1)):
        got = Resize((height, width))(rgb)
        assert np.abs(got.astype(int) - pillow(rgb, (width, height))).max() <= 2
        plan = Plan.whole((257, 333)).resize((height, width))
        window = (width // 3, height // 4, width // 3 + max(width // 2, 1), height // 4 + max(height // 2, 1))
        part = render_array(rgb, plan.crop(window).flip(x=True))
        expected = pillow(rgb, (width, height))[window[1] : window[3], window[0] : window[2]][:, ::-1]
        assert np.abs(part.astype(int) - expected).max() <= 2
    # A region that is not whole in the reduced image, whose edges no pixel from outside may cross.
    data = encode(rgb, "jpg")
    plan = Plan.whole((257, 333)).crop((31, 33, 232, 234)).resize((90, 90))
    assert np.abs(render(data, Planned(lambda _: plan)).astype(int) - render_array(decode(data), plan)).mean() < 3


def test_threads_do_not_disturb_each_other() -> None:
    sets = [made(180 + 10 * number, 140, seed=number) for number in range(4)]
    pipeline = Pipeline(TRAIN)
    rows = pipeline.numbers(0, 0, np.arange(64)).tolist()
    expected = [pipeline.render(sets[at % 4], row) for at, row in enumerate(rows)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda at: pipeline.render(sets[at % 4], rows[at]), range(64)))
    np.testing.assert_array_equal(got, expected)


def test_without_the_fast_wheels_the_pixels_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    data, pipeline = made(180, 140), Pipeline([RandomResizedCrop(150, scale=(0.3, 0.5))])
    row = pipeline.numbers(0, 0, [0])[0].tolist()
    expected = pipeline.render(data, row)
    monkeypatch.setattr(jpeg, "_simplejpeg", lambda: None)
    np.testing.assert_array_equal(pipeline.render(data, row), expected)


def test_planning_needs_no_torch_and_no_opencv() -> None:
    code = (
        "import sys, pickle, fastdata.transforms as t\n"
        "p = pickle.loads(pickle.dumps(t.Pipeline([t.RandomResizedCrop(3), t.RandomHorizontalFlip()])))\n"
        "p.plan((5, 5), p.numbers(0, 0, [0])[0])\n"
        "print(sorted({'torch', 'cv2', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_rendering_needs_no_torch() -> None:
    needs.package("cykooz_resizer")
    code = (
        "import sys, numpy as np, fastdata.transforms as t, fastdata.transforms.render as r\n"
        "t.Resize(30)(np.zeros((99, 99, 3), np.uint8))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
