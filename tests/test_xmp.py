"""Orientation that XMP states: it counts where EXIF has none, as in Pillow, in every kind of file that carries it."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageOps, PngImagePlugin

from fastdata.codec.cropindex import load
from fastdata.codec.decode import decode
from fastdata.codec.encode import encode
from fastdata.codec.exif import XMP
from fastdata.codec.sniff import probe
from fastdata.transforms.plan import Plan
from fastdata.transforms.render import render
from tests import images
from tests.test_render import Planned

RGB = images.photo(48, 36, 11)
NAMED = b"XML:com.adobe.xmp"


def packet(turn: int, form: str = "attribute") -> bytes:
    inside = b'tiff:Orientation="%d"/>' if form == "attribute" else b"><tiff:Orientation>%d</tiff:Orientation></rdf>"
    return b'<x:xmpmeta xmlns:tiff="http://ns.adobe.com/tiff/1.0/"><rdf ' + inside % turn + b"</x:xmpmeta>"


def _jpeg(turn: int, form: str, **options: bytes) -> bytes:
    return with_app1(images.saved(RGB, "jpeg", quality=95, **options), XMP + packet(turn, form))


def with_app1(jpeg: bytes, *bodies: bytes) -> bytes:
    at = 2  # behind whatever stands there already
    while jpeg[at + 1] in (0xE0, 0xE1, 0xE9):
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    parts = b"".join(b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body for body in bodies)
    return jpeg[:at] + parts + jpeg[at:]


def with_chunk(png: bytes, name: bytes, body: bytes, *, last: bool = False) -> bytes:
    at = len(png) - 12 if last else 33
    return png[:at] + images.chunk(name, body) + png[at:]


def _png(turn: int, form: str, **options: bytes) -> bytes:
    return with_chunk(images.saved(RGB, "png", **options), b"iTXt", NAMED + b"\0\0\0\0\0" + packet(turn, form))


def _webp(turn: int, form: str, **options: bytes) -> bytes:
    return images.saved(RGB, "webp", lossless=True, xmp=packet(turn, form), **options)


def _tiff(turn: int, form: str) -> bytes:
    return images.saved(RGB, "tiff", tiffinfo={700: packet(turn, form)})


KINDS: dict[str, Callable[..., bytes]] = {"jpeg": _jpeg, "png": _png, "webp": _webp, "tiff": _tiff}


def assert_as_pillow(data: bytes) -> None:
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    got = decode(data)
    assert got.shape == expected.shape
    assert probe(data).upright_size == got.shape[:2]
    assert np.abs(got.astype(int) - expected).mean() <= 1


@pytest.mark.parametrize("form", ["attribute", "element"])
@pytest.mark.parametrize("turn", [*range(10)])
@pytest.mark.parametrize("kind", KINDS)
def test_xmp_alone(kind: str, turn: int, form: str) -> None:
    data = KINDS[kind](turn, form)
    assert probe(data).orientation == (turn if 1 <= turn <= 8 else 1)
    assert_as_pillow(data)


@pytest.mark.parametrize("told", [1, 8, 0, 9])
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_exif_comes_first_even_if_it_makes_no_sense(kind: str, told: int) -> None:
    data = KINDS[kind](6, "attribute", exif=images.exif(told))
    assert probe(data).orientation == told if told in (1, 8) else 1
    assert_as_pillow(data)


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_exif_without_an_orientation_leaves_it_to_xmp(kind: str) -> None:
    block = Image.Exif()
    block[0x010F] = "a camera"
    assert_as_pillow(KINDS[kind](6, "attribute", exif=block.tobytes()))
    assert probe(KINDS[kind](6, "attribute", exif=block.tobytes())).orientation == 6


def test_the_last_packet_counts() -> None:
    data = with_app1(images.saved(RGB, "jpeg"), XMP + packet(6), XMP + packet(3))
    assert probe(data).orientation == 3
    assert_as_pillow(data)


@pytest.mark.parametrize("last", [False, True])
def test_png_texts_of_every_sort(last: bool) -> None:
    png, text = images.saved(RGB, "png"), packet(8)
    bodies = {
        b"iTXt": NAMED + b"\0\1\0en\0key\0" + zlib.compress(text), b"tEXt": NAMED + b"\0" + text,
        b"zTXt": NAMED + b"\0\0" + zlib.compress(text),
    }  # fmt: skip
    for name, body in bodies.items():
        data = with_chunk(png, name, body, last=last)
        assert probe(data).orientation == 8, name
        assert_as_pillow(data)


def test_exif_in_hex_digits_as_imagemagick_writes_it() -> None:
    digits = "\nexif\n      30\n" + images.exif(6).hex()
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", digits, zip=True)
    data = images.saved(RGB, "png", pnginfo=info)
    assert probe(data).orientation == 6
    assert_as_pillow(data)
    for damaged in ("\nexif\n 3\nno digits", "\nexif\n", ""):
        other = PngImagePlugin.PngInfo()
        other.add_text("Raw profile type exif", damaged)
        assert probe(images.saved(RGB, "png", pnginfo=other)).orientation == 1


def test_a_packet_that_inflates_without_end_is_looked_at_in_part() -> None:
    bomb = zlib.compress(bytes(200 << 20) + packet(6))
    data = with_chunk(images.saved(RGB, "png"), b"iTXt", NAMED + b"\0\1\0\0\0" + bomb)
    assert probe(data).orientation == 1


def test_a_crop_of_an_indexed_jpeg_is_turned_too() -> None:
    rgb = images.photo(200, 160, 3)
    data = with_app1(encode(rgb, "jpg", quality=95), XMP + packet(6))
    found = load(data)
    assert found is not None
    assert not found.header.plain
    part = render(data, Planned(lambda size: Plan.whole(size).crop((20, 10, 90, 70))))
    np.testing.assert_array_equal(part, decode(data)[10:70, 20:90])
    upright = load(with_app1(encode(rgb, "jpg", quality=95), XMP + packet(1)))
    assert upright is not None
    assert upright.header.plain
