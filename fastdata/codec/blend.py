"""Samples of any depth and transparency to plain 8-bit RGB, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Alpha = Literal["white", "black", "drop"]
"""What becomes of transparency: laid over white, laid over black, or ignored so that hidden colours show."""

BACKGROUNDS: dict[str, int | None] = {"white": 255, "black": 0, "drop": None}

# Intermediate arrays are made for at most this many pixels: for a whole image of the largest size allowed they would
# take gigabytes.
_BAND_PIXELS = 1 << 16


def by_bands(size: tuple[int, int], rgb_of: Callable[[slice], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """H x W x 3 of an image of `size` (height, width), from a function that makes a range of its rows."""
    height, width = size
    out = np.empty((height, width, 3), np.uint8)
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        band = slice(top, min(top + rows, height))
        out[band] = rgb_of(band)
    return out


def eight_bits(samples: NDArray[np.generic], bits: int = 16) -> NDArray[np.uint8]:
    """The most significant eight bits, as libpng scales: never clipped, within one level of rounding."""
    if samples.dtype == np.uint8:
        return samples.astype(np.uint8, copy=False)
    return np.asarray(samples >> (bits - 8), np.uint8)  # type: ignore[operator]


def blend(rgba: NDArray[np.uint8], background: int | None) -> NDArray[np.uint8]:
    """H x W x 4 laid over a plain background, H x W x 3; None drops the transparency."""
    if background is None:
        return np.ascontiguousarray(rgba[..., :3])
    # 255 * 255 + 127 fits into 16 bits, so no wider type is needed.
    cover = rgba[..., 3:].astype(np.uint16)
    mixed = rgba[..., :3] * cover
    mixed += (255 - cover) * np.uint16(background) + np.uint16(127)
    mixed //= 255
    return mixed.astype(np.uint8)


def three(gray: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """H x W gray as H x W x 3."""
    return np.repeat(gray[..., None], 3, axis=2)
