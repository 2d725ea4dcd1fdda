"""Resizing RGB: one filter, in the fastest engine that is installed.

Flows in: H x W x 3 uint8 RGB and the size wanted. Flows out: exactly that size, contiguous, writable, never the input.

Where a side shrinks the filter is antialiased bilinear, as Pillow and torchvision have it: cykooz-resizer (the Rust
crate fast_image_resize) within one level of Pillow and several times faster, or Pillow itself where that wheel is not
installed. Where neither side shrinks, the same filter is plain linear interpolation, and OpenCV does it. Neither
engine is imported before the first picture that shrinks.
"""

from __future__ import annotations

import functools

import cv2
import numpy as np

from fastdata.checks import image, integer
from fastdata.codec.engines import RGB, Engine, Region, cykooz, pillow
from fastdata.size import Size


def resize(rgb: RGB, size: tuple[int, int], region: Region | None = None) -> RGB:
    """Resize to (height, width), whatever the aspect.

    Args:
        rgb: H x W x 3 uint8.
        size: wanted; sides of at least 1.
        region: (x0, y0, x1, y1) of what becomes that size, in fractions of a pixel; only where both sides shrink.

    Returns:
        A new array.

    Raises:
        OptionError: a side below 1, or not such an array.
    """
    image("resize", rgb)
    height, width = size
    for side in (height, width):
        integer("each side of size", side, 1)
    old_height, old_width = rgb.shape[:2]
    if (width, height) == (old_width, old_height):
        return rgb.copy()
    if width >= old_width and height >= old_height:
        return np.asarray(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
    shrunk = _engine().shrink(rgb, Size(height, width), region)
    return shrunk if shrunk.flags.writeable else shrunk.copy()


def engine() -> str:
    """The engine that shrinks, with its version: `cykooz-resizer 4.0.1` or `pillow 13.0.0`."""
    return _engine().name


@functools.cache
def _engine() -> Engine:
    """The best engine that needs no torch."""
    try:
        return cykooz()
    except ImportError:
        return pillow()
