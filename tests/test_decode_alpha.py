"""Transparency: laid over white or black, or dropped, whatever container carries it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from fastdata.codec.blend import Alpha, blend
from fastdata.codec.decode import decode
from tests import images, likeness

ODD = images.odd_images()
GOOD = {name: (data, rgb) for name, (data, rgb) in ODD.items() if rgb is not None}
BAD = sorted(name for name, (_, rgb) in ODD.items() if rgb is None)


ALPHA_FILES = [name for name in GOOD if name.startswith(("rgba", "graya", "rgb-trns", "palette-trns", "transparent"))]


@pytest.mark.parametrize("name", ALPHA_FILES)
def test_one_rule_for_transparency(name: str) -> None:
    data, white = GOOD[name]
    black, dropped = decode(data, alpha="black"), decode(data, alpha="drop")
    likeness.assert_alike(decode(data, alpha="white"), white, name)
    assert (black.astype(int) <= decode(data).astype(int) + 1).all()
    assert black.mean() < white.mean()
    # Where the image is opaque, all three agree.
    solid = (black == decode(data)).all(2)
    assert solid.any()
    assert likeness.distance(dropped[solid], black[solid]) <= 1


def test_dropping_shows_what_lay_beneath() -> None:
    rgb = images.photo(20, 10)
    clear = np.dstack([rgb, np.zeros((10, 20), np.uint8)])
    for data in (images.png(clear), images.webp(clear, exact=True), images.saved(clear, "tiff")):
        np.testing.assert_array_equal(decode(data, alpha="drop"), rgb)
        assert (decode(data) == 255).all()
        assert (decode(data, alpha="black") == 0).all()


def test_blending_is_rounded_right() -> None:
    every = np.stack(np.meshgrid(np.arange(256), np.arange(256)), -1).astype(np.uint8)
    rgba = np.concatenate([np.repeat(every[..., :1], 3, 2), every[..., 1:]], 2)
    for background in (255, 0):
        np.testing.assert_array_equal(blend(rgba, background), images.over(rgba[..., :3], rgba[..., 3], background))


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_a_gray_png_with_one_transparent_level(bits: int) -> None:
    most = (1 << bits) - 1
    levels = np.linspace(0, most, 64).astype(np.uint16).reshape(8, 8)
    key = int(levels[3, 3])
    packed = [int("".join(format(int(level), f"0{bits}b") for level in row), 2).to_bytes(bits, "big") for row in levels]
    data = images.raw_png(
        b"".join(b"\0" + row for row in packed), 8, 8, bits, 0, images.chunk(b"tRNS", key.to_bytes(2, "big"))
    )
    gray = (levels.astype(np.uint32) * 255 // most).astype(np.uint8)
    rules: tuple[tuple[Alpha, int], ...] = (("white", 255), ("black", 0))
    for alpha, value in rules:
        wanted = np.where(levels == key, np.uint8(value), gray)
        assert likeness.distance(decode(data, alpha=alpha)[..., 2], wanted) <= 1
    assert likeness.distance(decode(data, alpha="drop")[..., 0], gray) <= 1


def test_a_key_colour_of_sixteen_bits() -> None:
    ramp = images.ramp16()
    pixels = np.dstack([ramp, ramp, ramp])
    data = images.png16(pixels, images.chunk(b"tRNS", struct.pack(">HHH", 32768, 32768, 32768)))
    wanted = np.where(ramp == 32768, 255, ramp >> 8).astype(np.uint8)
    assert likeness.distance(decode(data)[..., 0], wanted) <= 1
