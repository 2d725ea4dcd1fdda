"""Encoded images: whatever their kind, a part of one is the same pixels as in the whole, and says where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastdata.codec.decode import Rules, decode
from fastdata.codec.encoded import DamagedPart, IndexedJpeg, Part, RawPixels, WholeImage, open_encoded, open_whole
from fastdata.errors import CutError, DecodeError
from fastdata.size import Size
from tests import images
from tests.test_cropindex import made

BOX = (37, 21, 90, 64)
KINDS: dict[str, tuple[type, bytes]] = {
    "indexed": (IndexedJpeg, made(180, 140)),
    "raw": (RawPixels, images.npy(images.photo(180, 140))),
    "jpeg": (WholeImage, images.jpeg(images.photo(180, 140))),
    "turned": (WholeImage, images.turned(images.photo(180, 140), 6, restart_marker_blocks=1)),
    "png": (WholeImage, images.png(images.photo(180, 140))),
}


def inside(part: Part, box: tuple[int, int, int, int]) -> Any:
    """The pixels of a box at full size."""
    assert part.scale == 1
    x, y = (int(side) for side in part.origin)
    return part.pixels[box[1] - y : box[3] - y, box[0] - x : box[2] - x]


def broken(data: bytes) -> bytes:
    """A JPEG with a crop index whose Huffman table is impossible."""
    table = data.index(b"\xff\xc4") + 5
    return data[:table] + bytes([255] * 16) + data[table + 16 :]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_what_the_whole_has_there(kind: str) -> None:
    expected_type, data = KINDS[kind]
    image, whole = open_encoded(memoryview(data)), decode(data)
    assert type(image) is expected_type
    assert image.size == whole.shape[:2] == (140, 180)
    part = image.decode(BOX)
    assert part.size == image.size
    np.testing.assert_array_equal(inside(part, BOX), whole[BOX[1] : BOX[3], BOX[0] : BOX[2]])


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_image_belongs_to_the_caller(kind: str) -> None:
    data = KINDS[kind][1]
    pixels = open_encoded(data).decode().pixels
    expected = decode(data)
    np.testing.assert_array_equal(pixels, expected)
    pixels[...] = 0
    np.testing.assert_array_equal(open_encoded(data).decode().pixels, expected)


@pytest.mark.parametrize("kind", ["indexed", "jpeg"])
def test_a_part_at_a_scale_is_counted_in_its_pixels(kind: str) -> None:
    data = KINDS[kind][1]
    part = open_encoded(data).decode((64, 32, 128, 96), 4)
    assert part.scale == 4
    assert part.size == (140, 180)
    x, y = (int(side) for side in part.origin)
    np.testing.assert_array_equal(part.pixels[8 - y : 24 - y, 16 - x : 32 - x], decode(data, reduce=4)[8:24, 16:32])


def test_what_was_prepared_needs_the_data_no_more() -> None:
    data = bytearray(made(180, 140))
    expected = decode(bytes(data))
    image = open_encoded(data)
    assert isinstance(image, IndexedJpeg)
    for box in (BOX, (0, 0, 180, 140)):
        prepared = image.prepare(box)
        kept, data[:] = bytes(data), bytes(len(data))
        np.testing.assert_array_equal(inside(prepared.decode(), box), expected[box[1] : box[3], box[0] : box[2]])
        data[:] = kept


def test_nothing_is_decoded_for_an_empty_region() -> None:
    image = open_encoded(broken(made(180, 140)))
    assert isinstance(image, IndexedJpeg)
    assert image.prepare((10, 10, 10, 10)).decode().pixels.size == 0


def test_a_damaged_part_is_told_by_the_whole() -> None:
    image = open_encoded(broken(made(180, 140)))
    assert isinstance(image, IndexedJpeg)
    with pytest.raises(DamagedPart):
        image.prepare(BOX).decode()
    with pytest.raises(DecodeError):
        image.decode(BOX)


def test_rules_and_notes_reach_the_decoder() -> None:
    data = made(180, 140)
    short = data[: len(data) * 2 // 3]
    with pytest.raises(CutError):
        open_encoded(short).decode(BOX)
    notes: list[str] = []
    part = open_whole(short, Rules(keep_damaged=True)).decode(notes=notes)
    assert part.size == Size(140, 180)
    assert len(notes) == 1
    assert open_whole(short).info.cut
