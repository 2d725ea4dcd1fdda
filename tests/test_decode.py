"""Bytes to RGB: every kind of image comes out the same, upright, whole, and owned by the caller; or is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastdata.codec.blend import BACKGROUNDS, Alpha
from fastdata.codec.decode import MAX_PIXELS, Rules, decode
from fastdata.codec.sniff import probe
from fastdata.errors import CutError, DecodeError, OptionError, UnsupportedError
from tests import images, likeness

ODD = images.odd_images()
GOOD = {name: (data, rgb) for name, (data, rgb) in ODD.items() if rgb is not None}
BAD = sorted(name for name, (_, rgb) in ODD.items() if rgb is None)


@pytest.mark.parametrize("name", GOOD)
def test_every_kind_gives_the_upright_image(name: str) -> None:
    data, rgb = GOOD[name]
    notes: list[str] = []
    got = decode(data, notes=notes)
    likeness.assert_alike(got, rgb, name)
    assert notes == []
    assert got.flags.c_contiguous
    assert got.flags.writeable


@pytest.mark.parametrize("name", BAD)
def test_everything_else_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(ODD[name][0])
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, CutError) == name.startswith("cut")
    assert isinstance(caught.value, UnsupportedError) == (name in ("photo.heic", "photo.jxl"))


@pytest.mark.parametrize("name", GOOD)
def test_the_caller_owns_the_array(name: str) -> None:
    data, _ = GOOD[name]
    before = bytes(data)
    first = decode(data)
    copy = first.copy()
    first[:] = 7
    np.testing.assert_array_equal(decode(data), copy)
    assert data == before


@pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda data: memoryview(bytearray(data)).toreadonly()])
@pytest.mark.parametrize("name", ["plain.jpg", "plain.png", "plain.tif", "rgba.webp", "cut.jpg"])
def test_every_buffer_is_decoded_alike(name: str, wrap: Callable[[bytes], memoryview]) -> None:
    data = ODD[name][0]
    keep = name.startswith("cut")
    np.testing.assert_array_equal(decode(wrap(data), keep_damaged=keep), decode(data, keep_damaged=keep))


# Orientation


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "tif", "avif"])
def test_the_eight_turns_give_one_image(kind: str) -> None:
    first = decode(GOOD[f"turn-1.{kind}"][0])
    for turn in range(2, 9):
        # A lossy image that was encoded lying differs a little from one encoded upright.
        gap = np.abs(decode(GOOD[f"turn-{turn}.{kind}"][0]).astype(int) - first)
        assert gap.mean() <= (3 if kind in likeness.TOLERANCE else 0), f"orientation {turn}"


@pytest.mark.parametrize("kind", ["png", "webp", "tif", "avif"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_transparent_images_are_turned_too(kind: str, turn: int) -> None:
    rgb, cover = images.photo(30, 20), images.alpha_ramp(30, 20)
    settings: dict[str, dict[str, Any]] = {"webp": {"lossless": True, "exact": True}, "avif": {"quality": 100}}
    options = settings.get(kind, {})
    data = images.turned(np.dstack([rgb, cover]), turn, "tiff" if kind == "tif" else kind, **options)
    gap = np.abs(decode(data).astype(int) - images.over(rgb, cover))
    assert gap.mean() <= (3 if kind == "avif" else 0.01)


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_turned_jpeg_is_turned_at_every_scale(turn: int) -> None:
    data = GOOD[f"turn-{turn}.jpg"][0]
    for reduce in (2, 4, 8):
        got = decode(data, reduce=reduce)
        assert abs(got.shape[0] - 36 / reduce) < 1
        assert abs(got.shape[1] - 48 / reduce) < 1


# Colours


def four_inks(seed: int) -> NDArray[np.uint8]:
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 12, 4), dtype=np.uint8)
    return np.asarray(cv2.resize(coarse, (96, 64)), np.uint8)


@pytest.mark.parametrize("adobe", [True, False])
@pytest.mark.parametrize("ycck", [True, False])
def test_inks_become_the_colours_that_pillow_gives(ycck: bool, adobe: bool) -> None:
    for seed in range(5):
        data = images.saved(Image.fromarray(four_inks(seed), "CMYK"), "jpeg", quality=95, subsampling=0)
        if ycck:
            at = data.index(b"Adobe")
            data = data[: at + 11] + b"\x02" + data[at + 12 :]
        if not adobe:
            data = images.without_segment(data, 0xEE)
        with Image.open(io.BytesIO(data)) as image:
            wanted = np.asarray(image.convert("RGB"))
        assert likeness.distance(decode(data), wanted) <= 6


def test_a_jpeg_of_rgb_samples_is_no_ycc() -> None:
    rgb = images.photo(40, 30)
    assert likeness.distance(decode(images.jpeg(rgb, 98, keep_rgb=True)), rgb) < 20


def deep_files() -> dict[str, bytes]:
    ramp = images.ramp16()
    three = np.dstack([ramp, ramp[::-1], ramp.T])
    swapped = np.ascontiguousarray(three[..., ::-1])
    big = Image.frombytes("I;16B", (64, 64), ramp.astype(">u2").tobytes())
    return {
        "gray.png": images.png16(ramp),
        "rgb.png": images.png16(three),
        "gray.tif": images.saved(Image.fromarray(ramp), "tiff"),
        "gray-big.tif": images.saved(big, "tiff"),
        "gray-deflate.tif": images.saved(Image.fromarray(ramp), "tiff", compression="tiff_adobe_deflate"),
        "gray-inverted.tif": images.saved(Image.fromarray(65535 - ramp), "tiff", tiffinfo={262: 0}),
        "rgb.tif": cv2.imencode(".tif", swapped)[1].tobytes(),
        "gray.pgm": b"P5 64 64 65535\n" + ramp.astype(">u2").tobytes(),
        "rgb.ppm": b"P6 64 64 65535\n" + three.astype(">u2").tobytes(),
        "gray.jp2": images.saved(Image.fromarray(ramp), "jpeg2000"),
    }


@pytest.mark.parametrize("name", deep_files())
def test_sixteen_bits_are_scaled_never_clipped(name: str) -> None:
    got = decode(deep_files()[name])
    assert len(np.unique(got[..., 0])) == 256
    assert likeness.distance(got[..., 0], np.asarray(images.ramp16() >> 8, np.uint8)) <= 1


def test_ten_bits_of_avif_are_scaled() -> None:
    rgb = images.photo(64, 48)
    wide = rgb[..., ::-1].astype(np.uint16) << 2
    options = [cv2.IMWRITE_AVIF_DEPTH, 10, cv2.IMWRITE_AVIF_QUALITY, 95]
    data = cv2.imencode(".avif", wide, options)[1].tobytes()
    assert probe(data).bits == 10
    assert np.abs(decode(data).astype(int) - rgb).mean() < 4


@pytest.mark.parametrize("most", [1, 15, 200, 255, 1023, 65535])
@pytest.mark.parametrize("digit", [2, 5])
def test_netpbm_is_scaled_by_its_own_levels(most: int, digit: int) -> None:
    values = np.linspace(0, most, 48).astype(np.uint16).reshape(6, 8)
    body = values.astype(">u2" if most > 255 else "u1").tobytes()
    if digit == 2:
        body = b"\n".join(b" ".join(b"%d" % value for value in row) for row in values)
    got = decode(b"P%d\n# drawn\n8 6\n%d\n" % (digit, most) + body)
    assert likeness.distance(got[..., 1], np.rint(values / most * 255).astype(np.uint8)) <= 1


@pytest.mark.parametrize("options", [{"compression": "jpeg"}, {"compression": "packbits"}, {"big_tiff": True}, {}])
def test_tiff_in_its_many_forms(options: dict[str, object]) -> None:
    rgb = images.photo(50, 40)
    got = decode(images.saved(rgb, "tiff", **options))
    assert np.abs(got.astype(int) - rgb).mean() <= (6 if options.get("compression") == "jpeg" else 0)


def test_a_tiff_of_inks() -> None:
    image = Image.fromarray(four_inks(3), "CMYK")
    assert likeness.distance(decode(images.saved(image, "tiff")), np.asarray(image.convert("RGB"))) <= 1


@pytest.mark.parametrize("bitmap", ["png", "bmp"])
def test_the_largest_image_of_an_icon(bitmap: str) -> None:
    rgb = images.photo(64, 64)
    rgba = np.dstack([rgb, images.alpha_ramp(64, 64)])
    data = images.saved(rgba, "ico", bitmap_format=bitmap, sizes=[(16, 16), (64, 64), (32, 32)])
    assert likeness.distance(decode(data), images.over(rgb, rgba[..., 3])) <= 1


# Options and the array field


@pytest.mark.parametrize("options", [{"alpha": "grey"}, {"reduce": 3}, {"reduce": 0}])
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))} must be"):
        decode(GOOD["plain.jpg"][0], **options)  # type: ignore[arg-type]


def test_the_rules_for_transparency_are_those_of_the_type() -> None:
    assert set(BACKGROUNDS) == set(Alpha.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("reduce", [2, 4, 8])
@pytest.mark.parametrize("size", [(64, 48), (65, 47), (7, 9)])
def test_reduced_jpegs(reduce: int, size: tuple[int, int]) -> None:
    rgb = images.photo(*size)
    data = images.jpeg(rgb, 95)
    got = decode(data, reduce=reduce)
    assert got.shape == (-(-size[1] // reduce), -(-size[0] // reduce), 3)
    wanted = cv2.imdecode(np.frombuffer(data, np.uint8), {2: 17, 4: 33, 8: 65}[reduce])
    np.testing.assert_array_equal(got, np.asarray(wanted)[..., ::-1])


def test_of_an_animated_png_the_image_outside_counts() -> None:
    """The data of the still image may stand before the animation; that is what every viewer without APNG shows."""
    rgb = images.photo(48, 36, 11)
    still, moving = images.png(rgb), GOOD["animated.png"][0]
    parts = still[33 : still.index(b"IEND") - 4]
    control = moving[33 : moving.index(b"IDAT") - 4]
    assert b"fcTL" in control
    at = control.index(b"fcTL") - 4
    data = still[:33] + control[:at] + parts + control[at:] + moving[moving.index(b"IEND") - 4 :]
    np.testing.assert_array_equal(decode(data), rgb)


def test_other_kinds_ignore_reduce() -> None:
    np.testing.assert_array_equal(decode(GOOD["plain.png"][0], reduce=4), GOOD["plain.png"][1])


def test_arrays_as_numpy_saves_them() -> None:
    rgb = images.photo(20, 10)
    np.testing.assert_array_equal(decode(images.npy(rgb)), rgb)
    np.testing.assert_array_equal(decode(images.npy(np.asfortranarray(rgb))), rgb)
    gray = rgb[..., 0]
    for array in (gray, gray[..., None]):
        np.testing.assert_array_equal(decode(images.npy(array)), np.dstack([gray] * 3))
    rgba = np.dstack([rgb, images.alpha_ramp(20, 10)])
    np.testing.assert_array_equal(decode(images.npy(rgba)), images.over(rgb, rgba[..., 3]))


def test_no_pickle_is_ever_loaded() -> None:
    with pytest.raises(DecodeError):
        decode(images.npy(np.array([{"a": 1}], object)))


def test_rules_come_from_a_manifests_options_which_may_hold_anything() -> None:
    made = {"alpha": "drop", "max_pixels": 100, "keep_damaged": True, "resize": 256}
    assert Rules.of(made) == Rules("drop", 100, True)
    for options in ({}, {"alpha": 0.5, "max_pixels": "many", "keep_damaged": "yes"}, {"alpha": [], "max_pixels": True}):
        assert Rules.of(options) == Rules("white", MAX_PIXELS, False)
