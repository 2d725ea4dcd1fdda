"""The crop index: what is cut decodes to the very pixels of the whole image, whatever the index says."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastdata.codec import cropindex, jpeg
from fastdata.codec.cropindex import MAX_INTERVALS, cut, embed, load, restart_interval
from fastdata.codec.decode import decode
from fastdata.codec.encode import encode
from fastdata.codec.opencv import imdecode
from tests import images, needs

RGB = NDArray[np.uint8]
Decoder = Callable[[Any, int, tuple[int, int]], RGB | None]

# OpenCV's code and the size of an MCU in pixels: (width, height).
SAMPLINGS = {
    "420": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, (16, 16)),
    "422": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422, (16, 8)),
    "444": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444, (8, 8)),
    "440": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440, (8, 16)),
    "411": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411, (32, 8)),
    "gray": (0, (8, 8)),
}
# 17 and 23 MCUs of 16 pixels are prime rows; 1 to 9 pixels are less than one MCU.
SIDES = st.one_of(st.integers(1, 40), st.integers(41, 200), st.sampled_from([17 * 16, 23 * 16, 256, 341]))
BOX = st.tuples(*[st.floats(0, 1)] * 4)


def made(
    width: int, height: int, sampling: str = "420", quality: int = 90, interval: int | None = None, seed: int = 0
) -> bytes:
    """A JPEG with restart markers, and its index where it can have one."""
    factor, mcu = SAMPLINGS[sampling]
    image = images.photo(width, height, seed)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    options += [cv2.IMWRITE_JPEG_RST_INTERVAL, restart_interval(width, height, mcu) if interval is None else interval]
    if sampling == "gray":
        image = image[..., 1]
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    return embed(cv2.imencode(".jpg", image, options)[1].tobytes())


def with_opencv(data: Any, scale: int, _: tuple[int, int]) -> RGB | None:
    return imdecode(data, jpeg.FLAGS[scale])[0]


def with_simplejpeg(data: Any, scale: int, size: tuple[int, int]) -> RGB | None:
    needs.package("simplejpeg")
    fast = jpeg._simplejpeg()
    assert fast is not None
    return fast(data, scale, size, None) if scale == 1 or max(size) >= 8 else imdecode(data, jpeg.FLAGS[scale])[0]


def box_of(shares: tuple[float, ...], width: int, height: int) -> tuple[int, int, int, int]:
    xs = sorted(round(share * width) for share in shares[:2])
    ys = sorted(round(share * height) for share in shares[2:])
    x0, y0 = min(xs[0], width - 1), min(ys[0], height - 1)
    return x0, y0, max(xs[1], x0 + 1), max(ys[1], y0 + 1)


def check_cut(data: Any, box: tuple[int, int, int, int], scale: int, decoder: Decoder) -> None:
    """The pixels of a box, cut and whole, are the same."""
    found = load(data)
    assert found is not None
    height, width = found.header.size
    x0, y0, x1, y1 = box
    x0, y0, x1, y1 = x0 - x0 % scale, y0 - y0 % scale, min(-(-x1 // scale) * scale, width), y1
    y1 = min(-(-y1 // scale) * scale, height)
    small, (x, y), size = cropindex.cut_loaded(found, (x0, y0, x1, y1), scale)
    whole, part = decoder(data, scale, (height, width)), decoder(small, scale, size)
    assert whole is not None
    assert part is not None
    assert part.shape[:2] == (-(-size[0] // scale), -(-size[1] // scale))
    rows, columns = slice(y0 // scale, -(-y1 // scale)), slice(x0 // scale, -(-x1 // scale))
    inside = part[y0 // scale - y // scale :, x0 // scale - x // scale :]
    expected = whole[rows, columns]
    np.testing.assert_array_equal(inside[: expected.shape[0], : expected.shape[1]], expected)


@pytest.mark.parametrize("decoder", [with_opencv, with_simplejpeg])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@settings(max_examples=60)
@given(width=SIDES, height=SIDES, quality=st.sampled_from([1, 50, 75, 90, 100]), shares=BOX,
       scale=st.sampled_from([1, 1, 2, 4, 8]), seed=st.integers(0, 3))  # fmt: skip
@example(width=1, height=1, quality=90, shares=(0, 1, 0, 1), scale=1, seed=0)
@example(width=272, height=368, quality=90, shares=(0.5, 0.5, 0.5, 0.5), scale=1, seed=0)
@example(width=341, height=256, quality=90, shares=(1, 1, 1, 1), scale=8, seed=0)
def test_a_cut_decodes_to_the_pixels_of_the_whole(
    decoder: Decoder, sampling: str, width: int, height: int, quality: int, shares: tuple[float, ...], scale: int,
    seed: int,
) -> None:  # fmt: skip
    check_cut(made(width, height, sampling, quality, seed=seed), box_of(shares, width, height), scale, decoder)


@settings(max_examples=80)
@given(width=SIDES, height=SIDES, interval=st.integers(1, 60), shares=BOX, indexed=st.booleans())
def test_any_restart_interval_is_cut_or_left_whole(
    width: int, height: int, interval: int, shares: tuple[float, ...], indexed: bool
) -> None:
    data = made(width, height, interval=interval)
    row = -(-width // 16)
    if row % interval and interval % row:
        assert load(data) is None
        assert cut(data, (0, 0, 1, 1)) == (data, (0, 0))
        return
    check_cut(data if indexed else without_index(data), box_of(shares, width, height), 1, with_opencv)


def without_index(data: bytes) -> bytes:
    if data[2:4] != b"\xff\xe9":
        return data
    return data[:2] + data[4 + int.from_bytes(data[4:6], "big") :]


@pytest.mark.parametrize("extra", ["exif", "icc", "adobe", "comment"])
def test_other_segments_do_not_disturb(extra: str) -> None:
    rgb = images.photo(200, 150)
    options: dict[str, Any] = {"restart_marker_blocks": 1}
    if extra == "exif":
        options["exif"] = images.exif(1)
    elif extra == "icc":
        options["icc_profile"] = bytes(70_000)  # two segments
    elif extra == "comment":
        options["comment"] = b"x" * 300
    else:
        options["keep_rgb"] = True  # Pillow writes Adobe's marker: the components are RGB, not YCC
    data = embed(images.jpeg(rgb, **options))
    assert data[2:4] == b"\xff\xe9"
    for decoder in (with_opencv, with_simplejpeg):
        check_cut(data, (70, 60, 130, 90), 1, decoder)
    small, _ = cut(data, (70, 60, 130, 90))
    assert not any(name in small for name in (b"Exif", b"ICC_PROFILE", b"FDCROP", b"xxxx"))
    assert (b"Adobe" in small) == (b"Adobe" in data)


@pytest.mark.parametrize("turn", range(1, 9))
def test_only_upright_images_are_plain(turn: int) -> None:
    data = embed(images.turned(images.photo(64, 48), turn, restart_marker_blocks=1))
    found = load(data)
    assert found is not None
    assert found.header.plain == (turn == 1)


def test_four_colours_are_not_plain() -> None:
    data = images.saved(Image.fromarray(np.zeros((40, 40, 4), np.uint8), "CMYK"), "jpeg", restart_marker_blocks=1)
    found = load(embed(data))
    assert found is None or not found.header.plain


@pytest.mark.parametrize("options", [{"progressive": True, "restart_marker_blocks": 1}, {}, {"progressive": True}])
def test_what_cannot_be_cut_stays_whole(options: dict[str, Any]) -> None:
    data = images.jpeg(images.photo(100, 80), **options)
    assert load(data) is None
    assert embed(data) is data
    assert cut(data, (10, 10, 20, 20)) == (data, (0, 0))


BYTES_LIKE: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "writable view": lambda data: memoryview(bytearray(data)),
    "signed view": lambda data: memoryview(np.frombuffer(data, np.int8)),
}


@pytest.mark.parametrize("kind", BYTES_LIKE)
def test_any_bytes_like_will_do(kind: str) -> None:
    data = made(200, 150)
    small, corner = cut(BYTES_LIKE[kind](data), (70, 60, 130, 90))
    assert (bytes(small), corner) == (bytes(cut(data, (70, 60, 130, 90))[0]), (64, 48))


def test_a_box_of_everything_is_the_jpeg_itself() -> None:
    data = made(100, 80)
    small, corner = cut(data, (0, 0, 100, 80))
    assert corner == (0, 0)
    assert bytes(small) == data


def test_every_decoder_reads_an_indexed_jpeg_as_before() -> None:
    rgb = images.photo(341, 256)
    data = encode(rgb, "jpg")
    assert data[2:4] == b"\xff\xe9"
    plain = without_index(data)
    np.testing.assert_array_equal(decode(data), decode(plain))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(Image.open(io.BytesIO(plain))))
    assert embed(plain) == data
    assert embed(data) == data


@pytest.mark.parametrize("size", [(341, 256), (256, 256), (272, 256), (368, 256), (640, 480)])
def test_markers_and_index_cost_little(size: tuple[int, int]) -> None:
    rgb = images.photo(*size)
    plain = len(cv2.imencode(".jpg", rgb[..., ::-1], (cv2.IMWRITE_JPEG_QUALITY, 90))[1])
    prime = -(-size[0] // 16) in (17, 23)
    assert len(encode(rgb, "jpg")) < plain * (1.1 if prime else 1.055)  # drawn images are smaller than photos
    assert len(encode(rgb, "jpg", optimize=True)) < len(encode(rgb, "jpg"))
    np.testing.assert_array_equal(decode(encode(rgb, "jpg", optimize=True)), decode(encode(rgb, "jpg")))


@given(width=st.integers(1, 65500), height=st.integers(1, 65500), mcu=st.sampled_from([(16, 16), (8, 8), (16, 8)]))
def test_the_interval_divides_the_row_and_its_index_fits(width: int, height: int, mcu: tuple[int, int]) -> None:
    row, rows = -(-width // mcu[0]), -(-height // mcu[1])
    interval = restart_interval(width, height, mcu)
    assert row % interval == 0
    assert row // interval * rows <= MAX_INTERVALS


def test_an_index_that_would_not_fit_is_left_out() -> None:
    gray = np.zeros((8 * 182, 8 * 181), np.uint8)  # 32,942 intervals
    data = cv2.imencode(".jpg", gray, (cv2.IMWRITE_JPEG_RST_INTERVAL, 1))[1].tobytes()
    assert embed(data) == data
    assert load(data) is None
    long = np.random.default_rng(0).integers(0, 256, (256, 512, 3), np.uint8)  # rows of over 64 kB
    options = (cv2.IMWRITE_JPEG_QUALITY, 100, cv2.IMWRITE_JPEG_RST_INTERVAL, 32 * 8)
    data = cv2.imencode(".jpg", long, options)[1].tobytes()
    assert embed(data) == data
    check_cut(data, (100, 100, 140, 140), 1, with_opencv)  # found by their markers
