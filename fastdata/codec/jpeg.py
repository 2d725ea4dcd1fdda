"""Decode JPEGs with the fastest installed decoder.

Pixels are RGB as stored, at full size or at 1/2, 1/4 or 1/8, and come with what libjpeg reports about damage.
simplejpeg is used if it is installed, else OpenCV; both are libjpeg-turbo with the same settings and give the same
pixels. Neither applies the orientation.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decoder_log import condense
from fastdata.codec.opencv import COLOR, imdecode
from fastdata.errors import resource_error
from fastdata.size import Size

if TYPE_CHECKING:
    from fastdata.codec.info import Data

RGB = NDArray[np.uint8]

# OpenCV has no REDUCED flags for RGB order; these bits of its BGR flags set the scale alone.
FLAGS = {1: COLOR} | {
    scale: COLOR | (flag & ~cv2.IMREAD_COLOR_BGR)
    for scale, flag in (
        (2, cv2.IMREAD_REDUCED_COLOR_2), (4, cv2.IMREAD_REDUCED_COLOR_4), (8, cv2.IMREAD_REDUCED_COLOR_8),
    )
}  # fmt: skip
# simplejpeg takes the smallest of the scales 1/8, 2/8, ... that gives at least the requested size. From 8 pixels on
# each of them gives a different size, so the requested one is found.
_SURE = 8
_UNKNOWN = Size(0, 0)


# libjpeg's warnings, after which it continues; anything else is an error.
_WARNINGS = (
    "Corrupt JPEG data", "Premature end of JPEG", "Inconsistent progression", "Invalid SOS parameters",
    "Unknown Adobe", "Warning: unknown JFIF",
)  # fmt: skip
# Warnings that coded data are missing, in the whole image or between two restart markers.
_ENDS_EARLY = ("Corrupt JPEG data: premature end", "Premature end of JPEG")


def pixels(data: Data, scale: int = 1, size: Size = _UNKNOWN, scratch: RGB | None = None) -> RGB | None:
    """Decode an undamaged JPEG.

    Args:
        data: the whole file.
        scale: 1, 2, 4 or 8; sides are rounded up.
        size: the stored size, which simplejpeg needs for a scale.
        scratch: memory that the result may use. The next call with it overwrites the result.

    Returns:
        H x W x 3, contiguous and writable; None if the data are damaged, or of a kind that only Pillow reads.
    """
    found, log = decode_logged(data, scale, size, scratch)
    return None if log else found


def decode_logged(
    data: Data, scale: int = 1, size: Size = _UNKNOWN, scratch: RGB | None = None
) -> tuple[RGB | None, str]:
    """Decode a JPEG that may be damaged; also return what libjpeg reports about damage, "" if there is none."""
    decode = _simplejpeg()
    if decode is not None and (scale == 1 or max(size) >= _SURE):
        try:
            return decode(data, scale, size, scratch), ""
        except ValueError as error:  # damaged, or CMYK, which OpenCV reads
            if resource_error(error) is not None:
                raise MemoryError(str(error)) from error
            log = condense(str(error))
        if log.startswith(_WARNINGS):
            with contextlib.suppress(ValueError):
                return decode(data, scale, size, scratch, strict=False), log
    return imdecode(data, FLAGS[scale])


def ends_early(log: str) -> bool:
    """Whether libjpeg reports that pixels are missing, rather than that some may be wrong."""
    return any(warning in log for warning in _ENDS_EARLY)


def with_end_marker(data: Data) -> bytes:
    """A copy of a JPEG that lacks its end marker, or the second byte of it, with the marker added."""
    return bytes(data) + (b"\xd9" if data[-1:] == b"\xff" else b"\xff\xd9")


def engine() -> str:
    """The installed decoder of JPEGs, with its version: `simplejpeg 1.9.0` or `opencv 5.0.0`."""
    if _simplejpeg() is None:
        return f"opencv {cv2.__version__}"
    from importlib.metadata import version

    return f"simplejpeg {version('simplejpeg')}"


@functools.cache
def _simplejpeg() -> Callable[..., RGB] | None:
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None

    def decode(data: Data, scale: int, size: Size, scratch: RGB | None, strict: bool = True) -> RGB:
        height, width = size
        # Our own reading of the frame header gave this size; if libjpeg reads another one, simplejpeg raises.
        buffer = scratch if scratch is not None and 0 < 3 * width * height <= scratch.size else None
        if scale == 1:
            return decode_jpeg(data, buffer=buffer, strict=strict)  # type: ignore[no-any-return]
        width, height = -(-width // scale), -(-height // scale)
        return decode_jpeg(  # type: ignore[no-any-return]
            data, min_width=width, min_height=height, min_factor=1, buffer=buffer, strict=strict
        )

    return decode
