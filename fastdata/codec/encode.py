"""RGB to bytes: what conversion writes into records.

A file has no metadata other than the ICC profile that is passed. The same pixels and options give the same bytes, in
every process and on every run with the same libraries.
"""

from __future__ import annotations

import io
from typing import Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.checks import choice, image, integer
from fastdata.codec import cropindex
from fastdata.codec.icc import attached
from fastdata.codec.info import LONGEST_SIDES
from fastdata.codec.quiet import silence
from fastdata.errors import OptionError

Encoding = Literal["jpg", "png", "webp", "bmp", "npy"]
"""The kinds of file that `encode` writes, by the names of their record fields."""


def encode(
    rgb: NDArray[np.uint8],
    format: Encoding,
    *,
    quality: int = 90,
    optimize: bool = False,
    profile: bytes | None = None,
) -> bytes:
    """Encode an image.

    Args:
        rgb: H x W x 3 uint8.
        format: `jpg` (baseline, 4:2:0, with restart markers and the crop index of `cropindex`), `png`, `webp` (lossy),
            `bmp` or `npy` (the pixels as numpy saves them).
        quality: 1 to 100, for `jpg` and `webp`.
        optimize: compute Huffman tables for each `jpg`: some 3 % smaller, and encoding takes more than twice as long.
        profile: an RGB ICC profile to embed in a `jpg`, `png` or `webp`; other kinds cannot carry one.

    Returns:
        The file.

    Raises:
        OptionError: `rgb` is not such an array, the format is unknown, the quality is out of range, or a side is longer
            than the format allows.
    """
    _check(rgb, format, quality)
    if format == "npy":
        out = io.BytesIO()
        np.lib.format.write_array(out, np.ascontiguousarray(rgb), version=(1, 0), allow_pickle=False)
        return out.getvalue()
    options = {
        "jpg": _jpeg_options(rgb.shape[1], rgb.shape[0], quality, optimize),
        "webp": (cv2.IMWRITE_WEBP_QUALITY, quality),
        # The level that libpng itself takes: OpenCV's own default is faster and about a tenth larger.
        "png": (cv2.IMWRITE_PNG_COMPRESSION, 6),
    }.get(format, ())
    with silence:
        done, blob = cv2.imencode(f".{format}", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise OptionError(f"OpenCV could not encode {rgb.shape[1]} x {rgb.shape[0]} pixels as {format!r}")
    data = blob.tobytes() if profile is None else attached(blob.tobytes(), format, profile)
    return cropindex.embed(data) if format == "jpg" else data


def _jpeg_options(width: int, height: int, quality: int, optimize: bool) -> tuple[int, ...]:
    """Restart markers for the crop index; the sampling is OpenCV's default, stated because the markers depend on it."""
    return (
        cv2.IMWRITE_JPEG_QUALITY, quality,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
        cv2.IMWRITE_JPEG_RST_INTERVAL, cropindex.restart_interval(width, height, (16, 16)),
        cv2.IMWRITE_JPEG_OPTIMIZE, int(optimize),
    )  # fmt: skip


def _check(rgb: NDArray[np.uint8], format: str, quality: int) -> None:
    image("encode", rgb)
    choice("format", format, get_args(Encoding))
    integer("quality", quality, 1, 100)
    most = LONGEST_SIDES.get(format)
    if most is not None and max(rgb.shape[:2]) > most:
        size = f"{rgb.shape[1]} x {rgb.shape[0]}"
        raise OptionError(f"{format!r} holds {most} pixels a side at most, not {size}; resize it or use 'npy'")
