"""What bytes are said to be: kinds by content, headers without decoding, and data that end early."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastdata.codec.headers import boxes
from fastdata.codec.sniff import IMAGE_SUFFIXES, READABLE, UNSUPPORTED, probe, sniff
from fastdata.errors import CutError, DecodeError, UnsupportedError
from tests import images, likeness

GOOD = {name: data for name, (data, rgb) in images.odd_images().items() if rgb is not None}
# In these, whole frames, pages or rubbish follow the first image, which stays whole when they are cut away.
MORE_FOLLOWS = {"trailing.jpg", "animated.gif", "pages.tif"}


def kind_of(name: str) -> str:
    return IMAGE_SUFFIXES["." + name.rpartition(".")[2]]


@pytest.mark.parametrize("name", GOOD)
def test_kind_size_and_turn_come_from_the_content(name: str) -> None:
    info = probe(GOOD[name])
    assert sniff(GOOD[name]) == info.format == kind_of(name)
    assert info.upright_size == (36, 48)
    assert info.cut == ""
    assert info.pixels == 48 * 36


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)).toreadonly()])
@pytest.mark.parametrize("name", ["turn-6.jpg", "turn-6.png", "turn-6.webp", "turn-6.tif", "turn-6.avif", "plain.gif"])
def test_every_buffer_is_read_alike(name: str, wrap: Callable[[bytes], memoryview]) -> None:
    assert probe(wrap(GOOD[name])) == probe(GOOD[name])


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gray.jpg", {"mode": "gray", "lossless": False}),
        ("ycck.jpg", {"mode": "cmyk"}),
        ("turn-7.png", {"orientation": 7, "width": 36, "height": 48}),
        ("turn-3.avif", {"orientation": 3}),
        ("rgba16.png", {"alpha": True, "bits": 16}),
        ("rgb-trns.png", {"alpha": True, "bits": 8}),
        ("animated.png", {"animated": True}),
        ("lossy.webp", {"lossless": False}),
        ("plain.webp", {"lossless": True}),
        ("animated.webp", {"animated": True}),
        ("transparent.gif", {"alpha": True, "animated": False, "mode": "palette"}),
        ("animated.gif", {"animated": True}),
        ("pages.tif", {"animated": True}),
        ("gray16-be.tif", {"bits": 16, "mode": "gray"}),
        ("rgba.avif", {"alpha": True}),
        ("sequence.avif", {"animated": True}),
        ("plain.pbm", {"bits": 1}),
    ],
)
def test_what_headers_say(name: str, facts: dict[str, object]) -> None:
    info = probe(GOOD[name])
    assert {fact: getattr(info, fact) for fact in facts} == facts


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "heic"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "heic"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "avif"),
        (b"\0\0\0\x18ftypcrx \0\0\0\0crx isom", "raw"),
        (b"\xff\x0a\x01\x02", "jxl"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
        (b"\xff\xd8\xff\xf7\0\x0b\x08", "jls"),
        (b"8BPS\0\x01\0\0", "psd"),
        (b"II*\0\x10\0\0\0CR\x02\0", "raw"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- drawn -->\n<svg/>" + b" " * 20, "svg"),
        (b"P7\nWIDTH 1\n", "pam"),
        (b"Pf\n2 2\n-1.0\n", "pfm"),
        (b"#?RADIANCE\n", "hdr"),
        (bytes(40) + b"TRUEVISION-XFILE.\0", "tga"),
        (b"P6\n# made by hand\n1 1 255\n\0\0\0", "ppm"),
        (b"BM" + bytes(12) + b"\x28\0\0\0", "bmp"),
    ],
)
def test_signatures(head: bytes, kind: str) -> None:
    assert sniff(head) == kind


@pytest.mark.parametrize(
    "data",
    [b"", b"P", b"\xff", b"BM is a text", b"P6 of the plan is done", b"RIFF\0\0\0\0WAVEfmt ",
     b"\0\0\0\x18ftypisom\0\0\0\0mp42", b"<html><svg></svg></html>", b"\0\0\1\0", b"%PDF-1.7", b"GIF88a", b"\xff\xd8"],
)  # fmt: skip
def test_what_is_no_image_is_not_called_one(data: bytes) -> None:
    assert sniff(data) is None
    with pytest.raises(DecodeError):
        probe(data)


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_refused_kinds_say_what_to_do(kind: str) -> None:
    assert any(word in UNSUPPORTED[kind] for word in ("convert", "render"))
    assert kind in IMAGE_SUFFIXES.values()
    assert kind not in READABLE


def test_refused_kinds_are_refused_with_these_words() -> None:
    with pytest.raises(UnsupportedError, match=r"HEIC.*convert it to PNG or JPEG"):
        probe(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))


def test_endings_are_lower_case_with_their_dot() -> None:
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in IMAGE_SUFFIXES)
    assert {IMAGE_SUFFIXES[e] for e in (".jpeg", ".jfif", ".jpe", ".jpg")} == {"jpg"}
    assert IMAGE_SUFFIXES[".tiff"] == "tif"
    assert IMAGE_SUFFIXES[".heif"] == "heic"


@pytest.mark.parametrize("name", sorted(set(GOOD) - MORE_FOLLOWS - {f"turn-{n}.{k}" for n in range(1, 6) for k in (
    "jpg", "png", "webp", "tif", "avif")}))  # fmt: skip
def test_every_cut_is_seen(name: str) -> None:
    data = GOOD[name]
    # The last byte of a GIF is a trailer after the image; everything else belongs to the image.
    last = len(data) - (1 if name.endswith(".gif") else 0)
    places = {*range(48, last, max(1, last // 60)), *range(last - 8, last)}
    for place in sorted(places):
        try:
            cut = probe(data[:place]).cut
        except CutError:
            continue
        assert cut, f"{name} cut at {place} of {len(data)}"


@pytest.mark.parametrize("name", sorted(MORE_FOLLOWS))
def test_what_follows_the_first_image_may_be_cut(name: str) -> None:
    assert probe(GOOD[name][:-5]).cut == ""


def test_a_thumbnail_does_not_end_the_image() -> None:
    rgb = images.photo(64, 48)
    thumbnail = images.jpeg(images.photo(16, 12))
    data = images.jpeg(rgb)
    app1 = b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0" + thumbnail
    whole = data[:2] + b"\xff\xe1" + struct.pack(">H", len(app1) + 2) + app1 + data[2:]
    assert probe(whole).cut == ""
    assert (probe(whole).width, probe(whole).height) == (64, 48)
    assert "end marker" in probe(whole[:-50]).cut


def test_a_turn_is_found_in_every_spelling_of_exif() -> None:
    plain = images.jpeg(images.photo(16, 12))
    for order in "<>":
        mark = b"II" if order == "<" else b"MM"
        for kind, value in ((1, "B3x"), (3, "H2x"), (4, "I")):
            entry = struct.pack(order + "HHI", 0x0112, kind, 1) + struct.pack(order + value, 6)
            block = mark + struct.pack(order + "HIH", 42, 8, 1) + entry + bytes(4)
            app1 = b"Exif\0\0" + block
            data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(app1) + 2) + app1 + plain[2:]
            assert probe(data).orientation == 6


@pytest.mark.parametrize("value", [0, 9, 255, 65535])
def test_a_turn_that_makes_no_sense_is_none(value: int) -> None:
    data = images.jpeg(images.photo(16, 12), exif=images.exif(value))
    assert probe(data).orientation == 1


@given(st.binary(max_size=80))
def test_a_damaged_exif_block_never_costs_the_image(block: bytes) -> None:
    plain = images.jpeg(np.zeros((8, 8, 3), np.uint8))
    for start in (b"", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08"):
        app1 = b"Exif\0\0" + start + block
        data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(app1) + 2) + app1 + plain[2:]
        assert probe(data).orientation in range(1, 9)


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_decode_errors(data: bytes) -> None:
    for head in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0", b"MM\0+\0\x08\0\0", b"BM", b"RIFF",
                 b"\x93NUMPY\x01\0", b"\0\0\1\0\1\0", b"P6 ", b"\xff\x4f\xff\x51"):  # fmt: skip
        try:
            probe(head + data)
        except DecodeError as error:
            likeness.assert_one_line(error)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_headers_with_wrong_bytes_raise_nothing_but_decode_errors(name: str) -> None:
    dice = random.Random(name)
    for _ in range(200):
        data = bytearray(GOOD[name])
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(min(len(data), 400))] = dice.choice((0, 1, 127, 128, 255))
        try:
            probe(bytes(data))
        except DecodeError as error:
            likeness.assert_one_line(error)


def test_a_bmp_may_run_top_down() -> None:
    data = bytearray(images.bmp(images.photo(20, 10)))
    data[22:26] = struct.pack("<i", -10)
    assert (probe(bytes(data)).width, probe(bytes(data)).height) == (20, 10)


@pytest.mark.parametrize("size", [(0, 10), (10, 0), (-5, 10)])
def test_sizes_that_make_no_sense_are_refused(size: tuple[int, int]) -> None:
    data = bytearray(images.bmp(images.photo(20, 10)))
    data[18:26] = struct.pack("<ii", *size)
    with pytest.raises(DecodeError, match="claims"):
        probe(bytes(data))


def test_samples_without_a_fixed_white_are_refused() -> None:
    floats = images.saved(Image.fromarray(np.ones((4, 4), np.float32)), "tiff")
    with pytest.raises(UnsupportedError, match="scale it to 8 or 16 bits"):
        probe(floats)
    twelve = bytearray(images.jpeg(images.photo(16, 12)))
    twelve[twelve.index(b"\xff\xc0") + 4] = 12
    with pytest.raises(UnsupportedError, match="12 bits"):
        probe(bytes(twelve))


@pytest.mark.parametrize("size", [(33, 77), (1000, 3), (64, 64)])
def test_an_av1_stream_states_its_own_size(size: tuple[int, int]) -> None:
    data = images.saved(images.photo(*size), "avif")
    assert probe(data).claimed == size[0] * size[1]


def test_boxes_that_claim_nothing_end() -> None:
    assert list(boxes.boxes(b"\0\0\0\0free" + bytes(8), 0, 16)) == [(b"free", 8, 16)]
    assert list(boxes.boxes(b"\0\0\0\x04free" + bytes(8), 0, 16)) == []


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 4, 2), np.uint8), "shape"),
        (np.zeros(4, np.uint8), "shape"),
        (np.zeros((0, 4, 3), np.uint8), "shape"),
        (np.zeros((4, 4, 3), np.float32), "uint8"),
        (np.array([[{}]], object), "object"),
    ],
)
def test_npy_must_hold_pixels(array: NDArray[Any], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        probe(images.npy(array))
