"""JPEG pixels: the decoder of every JPEG, as fast as the installed wheels allow.

In: a whole JPEG. Out: its pixels as stored, RGB, at full size or at 1/2, 1/4 or 1/8; None where the data make a decoder
complain. simplejpeg (the extra `fast`) is asked first and OpenCV otherwise; both are libjpeg-turbo with the same
settings and give the same pixels. Neither turns pictures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec.opencv import COLOR, imdecode
from fastdata.errors import resource_error

if TYPE_CHECKING:
    from fastdata.codec.info import Data

RGB = NDArray[np.uint8]
Size = tuple[int, int]

# OpenCV has no REDUCED flags for RGB order; these bits of its BGR flags set the scale alone.
FLAGS = {1: COLOR} | {
    scale: COLOR | (flag & ~cv2.IMREAD_COLOR_BGR)
    for scale, flag in (
        (2, cv2.IMREAD_REDUCED_COLOR_2), (4, cv2.IMREAD_REDUCED_COLOR_4), (8, cv2.IMREAD_REDUCED_COLOR_8),
    )
}  # fmt: skip
# simplejpeg takes the smallest of the scales 1/8, 2/8, ... that gives the size asked for. From 8 pixels on each of
# them gives another size, so that the one meant is found.
_SURE = 8


def pixels(data: Data, scale: int = 1, size: Size = (0, 0), scratch: RGB | None = None) -> RGB | None:
    """Decode a JPEG.

    Args:
        data: the whole file.
        scale: 1, 2, 4 or 8; sides are rounded up.
        size: the stored (width, height), which simplejpeg needs to be told for a scale.
        scratch: memory that the result may lie in, until the next call with the same.

    Returns:
        H x W x 3, contiguous and writable; None where the data are damaged, or of a kind that only Pillow reads.
    """
    fast = _simplejpeg()
    if fast is not None and (scale == 1 or max(size) >= _SURE):
        try:
            return fast(data, scale, size, scratch)
        except ValueError as error:  # damaged, or CMYK: OpenCV repairs the first and reads the second
            if resource_error(error) is not None:
                raise MemoryError(str(error)) from error
    return imdecode(data, FLAGS[scale])


@functools.cache
def _simplejpeg() -> Callable[[Data, int, Size, RGB | None], RGB] | None:
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None

    def decode(data: Data, scale: int, size: Size, scratch: RGB | None) -> RGB:
        width, height = size
        # The frame header has been read before, by us; should libjpeg read another size, it raises.
        buffer = scratch if scratch is not None and 0 < 3 * width * height <= scratch.size else None
        if scale == 1:
            return decode_jpeg(data, buffer=buffer)  # type: ignore[no-any-return]
        width, height = -(-width // scale), -(-height // scale)
        return decode_jpeg(data, min_width=width, min_height=height, min_factor=1, buffer=buffer)  # type: ignore[no-any-return]

    return decode
