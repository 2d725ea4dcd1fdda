"""The crop index at the edges of its intervals: every box there, cut and then decoded, is the box of the whole image.

Chroma upsampling reaches one pixel over the edge of a box, and libjpeg does it in another way where an image is very
narrow, so an error of one pixel in a margin shows only for boxes that begin or end at an interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from fastdata.codec import jpeg
from fastdata.codec.cropindex import cut, embed
from fastdata.codec.opencv import imdecode
from tests.test_cropindex import SAMPLINGS

RGB = NDArray[np.uint8]
Span = tuple[int, int]

# Width -> MCUs in an interval of 4:2:0. 353 to 368 pixels are 23 MCUs, a prime number, so that their intervals are one
# MCU wide; the last one of 353 is one pixel wide. 320 has longer intervals; 33 and 49 have a last one of one pixel.
WIDTHS = {353: 1, 360: 1, 368: 1, 320: 4, 33: 1, 49: 2}
HEIGHT = 52  # three rows of 16, and a part of one


def encoded(width: int, sampling: str) -> bytes:
    code, mcu = SAMPLINGS[sampling]
    row = -(-width // mcu[0])
    interval = WIDTHS[width] if row % WIDTHS[width] == 0 else 1
    options = [cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, code]
    # Coloured noise: neighbouring chroma differs, so that a wrong neighbour always shows.
    pixels = np.random.default_rng(width).integers(0, 256, (HEIGHT, width, 3), np.uint8)
    return embed(cv2.imencode(".jpg", pixels, options)[1].tobytes())


def spans(length: int, edge: int, scale: int) -> list[Span]:
    """(start, end), whole pixels at 1/scale, that begin or end at an edge of the grid or a pixel beside it."""
    near = sorted({e + d * scale for e in range(0, length + edge, edge) for d in (-1, 0, 1)})
    starts = [(a, a + size * scale) for a in near for size in (1, 2, 4)]
    ends = [(b - size * scale, b) for b in near for size in (1, 2, 4)]
    return sorted({(max(a, 0), min(b, length)) for a, b in starts + ends if a < length and b > 0})


def boxes(width: int, sampling: str, scale: int) -> Iterator[tuple[Span, Span]]:
    """Every span across with some down, every span down with some across."""
    mcu = SAMPLINGS[sampling][1]
    across, down = spans(width, mcu[0], scale), spans(HEIGHT, mcu[1], scale)
    for one in across:
        yield from ((one, other) for other in (down[0], down[len(down) // 2], down[-1]))
    for other in down:
        yield from ((one, other) for one in (across[0], across[len(across) // 2], across[-1]))


def with_opencv(data: Any, scale: int) -> RGB:
    pixels = imdecode(data, jpeg.FLAGS[scale])[0]
    assert pixels is not None
    return pixels


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
@pytest.mark.parametrize("sampling", [name for name in SAMPLINGS if name != "gray"])
@pytest.mark.parametrize("width", WIDTHS)
def test_boxes_at_the_edges_of_intervals(width: int, sampling: str, scale: int) -> None:
    data = encoded(width, sampling)
    whole = with_opencv(data, scale)
    differs: dict[bytes, RGB] = {}  # by the cut: where it is not the whole
    wrong, count = [], 0
    for (x0, x1), (y0, y1) in boxes(width, sampling, scale):
        small, (x, y) = cut(data, (x0, y0, x1, y1), scale=scale)
        u, v = x // scale, y // scale
        name = b"%d %d " % (x, y) + small
        if name not in differs:
            part = with_opencv(small, scale)
            differs[name] = (part != whole[v : v + part.shape[0], u : u + part.shape[1]]).any(2)
        inside = differs[name][y0 // scale - v : -(-y1 // scale) - v, x0 // scale - u : -(-x1 // scale) - u]
        assert inside.shape == (-(-y1 // scale) - y0 // scale, -(-x1 // scale) - x0 // scale)
        count += 1
        if inside.any():
            wrong.append((x0, y0, x1, y1))
    assert not wrong, f"{len(wrong)} of {count} boxes differ, the first of them {wrong[0]}"
