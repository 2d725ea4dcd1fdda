"""RGB to bytes: what is written is what it says, the same every time, and read back by everybody."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fastdata.codec.decode import decode
from fastdata.codec.encode import Encoding, encode
from fastdata.codec.sniff import probe, sniff
from fastdata.errors import OptionError
from tests import images, likeness

KINDS: tuple[Encoding, ...] = ("jpg", "png", "webp", "bmp", "npy")
LOSSLESS = ("png", "bmp", "npy")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(64, 48), (1, 1), (3, 257), (101, 1)])
def test_every_kind_is_read_back(kind: Encoding, size: tuple[int, int]) -> None:
    rgb = images.photo(*size)
    before = rgb.copy()
    data = encode(rgb, kind)
    assert sniff(data) == kind
    info = probe(data)
    assert (info.width, info.height, info.orientation, info.cut) == (*size, 1, "")
    got = decode(data)
    if kind in LOSSLESS:
        np.testing.assert_array_equal(got, rgb)
    elif size == (64, 48):
        assert np.abs(got.astype(int) - rgb).mean() < 8
    np.testing.assert_array_equal(rgb, before)


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "bmp"])
def test_pillow_sees_the_same_image(kind: Encoding) -> None:
    data = encode(images.photo(64, 48), kind)
    with Image.open(io.BytesIO(data)) as image:
        assert likeness.distance(np.asarray(image.convert("RGB")), decode(data)) <= 2


def test_numpy_reads_its_field() -> None:
    rgb = images.photo(20, 10)
    np.testing.assert_array_equal(np.load(io.BytesIO(encode(rgb, "npy")), allow_pickle=False), rgb)
    assert encode(rgb, "npy") == images.npy(rgb)


def test_a_jpeg_is_baseline_without_metadata() -> None:
    data = encode(images.photo(64, 48), "jpg")
    assert b"\xff\xc0" in data
    assert b"Exif" not in data


@pytest.mark.parametrize("kind", ["jpg", "webp"])
def test_quality_costs_bytes(kind: Encoding) -> None:
    rgb = images.photo(64, 48)
    sizes = [len(encode(rgb, kind, quality=quality)) for quality in (10, 50, 90, 100)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_the_bytes_are_the_same_in_every_process() -> None:
    code = """
import hashlib
from fastdata.codec.encode import encode
from tests import images, likeness
rgb = images.photo(64, 48, 3)
print([hashlib.sha256(encode(rgb, kind)).hexdigest() for kind in ("jpg", "png", "webp", "bmp", "npy")])
"""
    runs = {subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout for _ in range(2)}
    assert len(runs) == 1


@pytest.mark.parametrize("layout", ["steps", "fortran", "turned"])
@pytest.mark.parametrize("kind", LOSSLESS)
def test_any_memory_layout_will_do(kind: Encoding, layout: str) -> None:
    rgb = images.laid_out(images.photo(20, 10), layout)
    rgb.flags.writeable = False
    np.testing.assert_array_equal(decode(encode(rgb, kind)), rgb)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 4), "u1"), ((4, 4, 4), "u1"), ((4, 4, 3), "f4"), ((0, 4, 3), "u1"), ((4, 4, 3), "u2")]
)
def test_other_arrays_are_refused(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(OptionError, match="H x W x 3 array of uint8"):
        encode(np.zeros(shape, dtype), "png")


def test_options_are_checked() -> None:
    rgb = images.photo(4, 4)
    with pytest.raises(OptionError, match=r"format must be 'jpg', 'png', .* not 'jpeg'"):
        encode(rgb, "jpeg")  # type: ignore[arg-type]
    for quality in (0, 101, -5):
        with pytest.raises(OptionError, match="quality must be an integer from 1 to 100"):
            encode(rgb, "jpg", quality=quality)


@pytest.mark.parametrize(("kind", "side"), [("jpg", 65501), ("webp", 16384)])
def test_sides_that_a_format_cannot_hold(kind: Encoding, side: int) -> None:
    with pytest.raises(OptionError, match=f"{side - 1} pixels a side"):
        encode(np.zeros((1, side, 3), np.uint8), kind)
    assert probe(encode(np.zeros((1, side - 1, 3), np.uint8), kind)).width == side - 1
