"""Samples of any depth and transparency to plain 8-bit RGB."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Alpha = Literal["white", "black", "drop"]
"""What becomes of transparency: laid over white, laid over black, or ignored so that hidden colours show."""

BACKGROUNDS: dict[str, int | None] = {"white": 255, "black": 0, "drop": None}


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
