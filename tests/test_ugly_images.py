"""Files that are odd in ways that programs do write: what decoding makes of them, and in what words it refuses."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastdata.codec.blend import by_bands
from fastdata.codec.decode import decode
from fastdata.codec.sniff import probe
from fastdata.converters.options import RecodeOptions
from fastdata.errors import CutError, DecodeError, TooLargeError, UnsupportedError
from tests import images
from tests.recoding import recode

RGB = images.photo(48, 36, 11)
XMP = b'<rdf:Description tiff:Orientation="6"/>'


def with_segments(data: bytes, *bodies: bytes) -> bytes:
    """A JPEG with APP1 segments right behind its start."""
    return data[:2] + b"".join(b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body for body in bodies) + data[2:]


@pytest.mark.parametrize("first", [b"Exif\0\0", images.exif(0), images.exif(9), b"Exif\0\0II*\0\xff\xff\xff\xff"])
def test_an_exif_block_that_does_not_tell_leaves_it_to_a_later_one(first: bytes) -> None:
    stored = images.jpeg(np.ascontiguousarray(images.STORED[6](RGB)), 95)
    data = with_segments(stored, first, images.exif(6))
    assert probe(data).orientation == 6
    assert decode(data).shape == RGB.shape
    assert probe(with_segments(stored, first)).orientation == 1


def test_the_first_exif_block_that_tells_counts() -> None:
    assert probe(with_segments(images.jpeg(RGB), images.exif(3), images.exif(6))).orientation == 3


@pytest.mark.parametrize(("tags", "turn"), [({700: XMP}, 6), ({700: XMP, 274: 1}, 1), ({700: XMP, 274: 3}, 3)])
def test_a_tiff_is_turned_by_its_tag_and_else_by_xmp(tags: dict[int, Any], turn: int) -> None:
    data = images.saved(np.ascontiguousarray(images.STORED[turn](RGB)), "tiff", tiffinfo=tags)
    assert probe(data).orientation == turn
    np.testing.assert_array_equal(decode(data), RGB)


def test_a_turn_that_is_a_byte() -> None:
    data = images.saved(np.ascontiguousarray(images.STORED[6](RGB)), "tiff", tiffinfo={274: 6})
    as_short = struct.pack("<HHIHH", 274, 3, 1, 6, 0)
    assert data.count(as_short) == 1
    np.testing.assert_array_equal(decode(data.replace(as_short, struct.pack("<HHIHH", 274, 1, 1, 6, 0))), RGB)


def test_a_tiff_must_have_all_its_strips() -> None:
    """Else a small file stands for a large image, of which most was never there."""
    data = images.saved(RGB, "tiff")
    height = struct.pack("<HHIHH", 257, 4, 1, 36, 0)
    rows = struct.pack("<HHIHH", 278, 4, 1, 36, 0)
    assert data.count(height) == data.count(rows) == 1
    tall = data.replace(height, struct.pack("<HHII", 257, 4, 1, 1_000_000))
    with pytest.raises(CutError, match="1 of the 27778 strips or tiles of 48 x 1000000"):
        decode(tall)


def test_twelve_bit_jpeg_in_a_tiff_is_refused() -> None:
    """Pillow gives noise for it."""
    data = images.saved(Image.fromarray(RGB[..., 0]), "tiff", compression="jpeg")
    bits = struct.pack("<HHIHH", 258, 3, 1, 8, 0)
    assert data.count(bits) == 1
    with pytest.raises(UnsupportedError, match="JPEG data of 12 bits"):
        decode(data.replace(bits, struct.pack("<HHIHH", 258, 3, 1, 12, 0)))


def test_jpeg_ls_is_told_by_name_wherever_its_frame_comes() -> None:
    with pytest.raises(UnsupportedError, match="JPEG-LS"):
        decode(b"\xff\xd8\xff\xe8\0\4ab" + b"\xff\xf7\0\x0b\x08\0\x10\0\x10\1\1\x11\0" + bytes(40))


def test_palette_pixels_without_a_palette_are_refused() -> None:
    rows = b"\0\1\2" * 2
    with pytest.raises(DecodeError, match="no palette before its pixels"):
        decode(images.raw_png(rows, 2, 2, 8, 3))
    late = images.raw_png(rows, 2, 2, 8, 3)
    late = late[:-12] + images.chunk(b"PLTE", bytes(9)) + late[-12:]
    with pytest.raises(DecodeError, match="no palette before its pixels"):
        decode(late)


def test_reasons_name_no_addresses() -> None:
    """They would differ from run to run."""
    damaged = bytearray(images.saved(RGB, "avif"))
    damaged[damaged.index(b"av1C") + 4] = 0
    for data in (bytes(damaged), images.saved(RGB, "tiff").replace(struct.pack("<HHIHH", 262, 3, 1, 2, 0), bytes(12))):
        with pytest.raises(DecodeError) as caught:
            decode(data)
        assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 1), (3, 70_000), (70_000, 3), (300, 400)])
def test_bands_leave_no_seams(shape: tuple[int, int]) -> None:
    whole = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)

    def rows(band: slice) -> NDArray[np.uint8]:
        return whole[band]

    np.testing.assert_array_equal(by_bands(shape, rows), whole)


def test_deep_and_transparent_images_larger_than_a_band() -> None:
    rgb = images.photo(500, 400, 3)
    alpha = images.alpha_ramp(500, 400)
    deep = images.png16(np.dstack([rgb, alpha]).astype(np.uint16) * 257)
    expected = images.over(rgb, alpha).astype(int)
    for data in (deep, images.png(np.dstack([rgb, alpha])), images.saved(np.dstack([rgb, alpha]), "tiff")):
        assert np.abs(decode(data) - expected).max() <= 1


def strip(width: int, height: int) -> tuple[bytes, NDArray[np.uint8]]:
    pixels = np.random.default_rng(2).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return images.png(pixels), pixels


@pytest.mark.parametrize(("width", "height"), [(1, 65_535), (65_535, 1), (3, 2000)])
def test_a_crop_of_a_strip_is_n_by_n_however_long_it_would_become(width: int, height: int) -> None:
    data, _ = strip(width, height)
    options = RecodeOptions(resize=64, resize_mode="crop", encode="raw", max_pixels=width * height)
    done = recode(data, options)
    assert decode(done.data).shape == (64, 64, 3)
    if max(width, height) == 2000:  # small enough to be made in the other way too
        other = recode(data, RecodeOptions(resize=64, resize_mode="crop", encode="raw"))
        assert np.abs(decode(done.data).astype(int) - decode(other.data)).max() <= 1


def test_a_side_too_long_for_png_is_a_rejection_in_words() -> None:
    data, _ = strip(1, 40_000)
    with pytest.raises(TooLargeError, match="does not fit into png, whose longest side is 1,000,000"):
        recode(data, RecodeOptions(resize=30, upscale=True, encode="png"))
    longest = io.BytesIO()
    Image.new("L", (1, 1_000_001)).save(longest, "bmp")
    with pytest.raises(TooLargeError, match="does not fit into png"):
        recode(longest.getvalue(), RecodeOptions(encode="png"))
    assert decode(recode(longest.getvalue(), RecodeOptions(encode="bmp")).data).shape == (1_000_001, 1, 3)
