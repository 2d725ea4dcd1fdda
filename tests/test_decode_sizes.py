"""Sizes: images above the limit are refused before memory is taken, in every kind of file."""

from __future__ import annotations

import struct

import cv2
import numpy as np
import pytest
from PIL import Image

from fastdata.codec import decode as module
from fastdata.codec import fallback, jpeg
from fastdata.codec.decode import MAX_PIXELS, decode
from fastdata.errors import DecodeError, TooLargeError
from tests import images

ODD = images.odd_images()
GOOD = {name: (data, rgb) for name, (data, rgb) in ODD.items() if rgb is not None}
BAD = sorted(name for name, (_, rgb) in ODD.items() if rgb is None)


def forbid_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever would take memory for pixels is called no more."""
    for place, name in ((jpeg, "decode_logged"), (module, "imdecode"), (module, "_npy"), (fallback, "decode")):
        monkeypatch.setattr(place, name, None)


@pytest.mark.parametrize("name", ["plain.jpg", "plain.png", "plain.webp", "plain.bmp", "plain.gif", "plain.tif",
                                  "plain.avif", "plain.jp2", "plain.ppm", "plain.pbm"])  # fmt: skip
def test_every_kind_is_held_against_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = GOOD[name][0]
    assert decode(data, max_pixels=48 * 36).shape == (36, 48, 3)
    forbid_decoders(monkeypatch)
    with pytest.raises(TooLargeError, match=r"48 x 36 = 1,728 pixels.*1,727 allowed.*--max-pixels"):
        decode(data, max_pixels=48 * 36 - 1)


def bombs() -> dict[str, bytes]:
    side = 30_000
    jpeg = bytearray(images.jpeg(images.photo(16, 16)))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = struct.pack(">HH", side, side)
    gif = bytearray(GOOD["plain.gif"][0])
    gif[6:10] = struct.pack("<HH", side, side)
    frame = bytearray(GOOD["plain.gif"][0])  # a small screen, and a frame that reaches far beyond it
    place = 13 + (3 << ((frame[10] & 7) + 1))
    while frame[place] != 0x2C:
        place += 2
        while frame[place]:
            place += frame[place] + 1
        place += 1
    frame[place + 5 : place + 9] = struct.pack("<HH", side, side)
    tile = cv2.imencode(".tif", images.photo(16, 16))[1].tobytes()
    webp = bytearray(images.webp(images.photo(16, 16)))
    webp[21:25] = struct.pack("<I", (16383 - 1) | (16383 - 1) << 14)
    bmp = bytearray(images.bmp(images.photo(16, 16)))
    bmp[18:26] = struct.pack("<ii", side, -side)
    jp2 = bytearray(GOOD["plain.jp2"][0])
    at = jp2.index(b"\xff\x4f\xff\x51")
    jp2[at + 8 : at + 16] = struct.pack(">II", side, side)
    avif = images.saved(np.zeros((2000, 3000, 3), np.uint8), "avif", speed=10).replace(
        struct.pack(">II", 3000, 2000), struct.pack(">II", 30, 20)
    )
    icon = images.png_bomb(side, side)
    return {
        "jpg": bytes(jpeg), "png": images.png_bomb(side, side), "gif": bytes(gif), "gif frame": bytes(frame),
        "webp": bytes(webp), "bmp": bytes(bmp), "jp2": bytes(jp2), "avif that lies": avif,
        "ppm": b"P6 30000 30000 255\n" + bytes(100), "pbm": b"P1 30000 30000\n0",
        "ico": struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(icon), 22) + icon,
        "tif": tile.replace(struct.pack("<HHIHH", 256, 3, 1, 16, 0), struct.pack("<HHII", 256, 4, 1, side)).replace(
            struct.pack("<HHIHH", 257, 3, 1, 16, 0), struct.pack("<HHII", 257, 4, 1, side)
        ),
        "npy": images.npy(np.zeros((30, 30, 3), np.uint8)).replace(b"(30, 30, 3), }      ", b"(30000, 30000, 3), }"),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", bombs())
def test_small_files_that_claim_much_take_no_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bombs()[kind]
    forbid_decoders(monkeypatch)
    limit = 1_000_000 if kind == "avif that lies" else MAX_PIXELS
    for keep in (False, True):
        with pytest.raises(TooLargeError):
            decode(data, max_pixels=limit, keep_damaged=keep)


def test_two_sizes_in_one_file_are_refused() -> None:
    data = bytearray(GOOD["plain.jp2"][0])
    at = data.index(b"ihdr") + 4
    data[at : at + 8] = struct.pack(">II", 60_000, 60_000)
    with pytest.raises(DecodeError, match="two sizes"):
        decode(bytes(data))


@pytest.mark.parametrize("name", ["plain.gif", "plain.tif", "plain.jp2"])
def test_pillow_s_own_limit_plays_no_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert decode(GOOD[name][0]).shape == (36, 48, 3)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_images_beyond_opencv_s_sides_are_read() -> None:
    width = (1 << 20) + 5
    data = images.raw_png(b"\0" + bytes(range(256)) * (width // 256) + bytes(width % 256), width, 1, 8, 0)
    assert decode(data).shape == (1, width, 3)
