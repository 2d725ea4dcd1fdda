"""JPEG pixels: the decoder of every JPEG, as fast as the installed wheels allow.

In: a whole JPEG. Out: its pixels as stored, RGB, at full size or at 1/2, 1/4 or 1/8, and what libjpeg has to say about
damage. simplejpeg is asked first and OpenCV otherwise; both are libjpeg-turbo with the same settings
and give the same pixels. Neither turns images.
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
# simplejpeg takes the smallest of the scales 1/8, 2/8, ... that gives the size asked for. From 8 pixels on each of
# them gives another size, so that the one meant is found.
_SURE = 8
_UNKNOWN = Size(0, 0)


# What libjpeg warns of, and goes on; anything else ends its work.
_WARNINGS = (
    "Corrupt JPEG data", "Premature end of JPEG", "Inconsistent progression", "Invalid SOS parameters",
    "Unknown Adobe", "Warning: unknown JFIF",
)  # fmt: skip
# The warnings that there are fewer coded data than pixels, in the whole image or between two restart markers.
_ENDS_EARLY = ("Corrupt JPEG data: premature end", "Premature end of JPEG")


def pixels(data: Data, scale: int = 1, size: Size = _UNKNOWN, scratch: RGB | None = None) -> RGB | None:
    """Decode a JPEG that gives no cause for complaint.

    Args:
        data: the whole file.
        scale: 1, 2, 4 or 8; sides are rounded up.
        size: as stored, which simplejpeg needs for a scale.
        scratch: memory that the result may lie in, until the next call with the same.

    Returns:
        H x W x 3, contiguous and writable; None where the data are damaged, or of a kind that only Pillow reads.
    """
    found, said = examined(data, scale, size, scratch)
    return None if said else found


def examined(data: Data, scale: int = 1, size: Size = _UNKNOWN, scratch: RGB | None = None) -> tuple[RGB | None, str]:
    """The pixels of a JPEG that may be damaged, and what libjpeg says about it ("" where it is whole)."""
    fast = _simplejpeg()
    if fast is not None and (scale == 1 or max(size) >= _SURE):
        try:
            return fast(data, scale, size, scratch), ""
        except ValueError as error:  # damaged, or CMYK, which OpenCV reads
            if resource_error(error) is not None:
                raise MemoryError(str(error)) from error
            said = condense(str(error))
        if said.startswith(_WARNINGS):
            with contextlib.suppress(ValueError):
                return fast(data, scale, size, scratch, strict=False), said
    return imdecode(data, FLAGS[scale])


def ends_early(said: str) -> bool:
    """Whether libjpeg says that pixels are missing, rather than that some may be wrong."""
    return any(words in said for words in _ENDS_EARLY)


def ended(data: Data) -> bytes:
    """A JPEG that lacks its end marker, or the second byte of that, with it."""
    return bytes(data) + (b"\xd9" if data[-1:] == b"\xff" else b"\xff\xd9")


def engine() -> str:
    """The decoder of JPEGs, with its version: `simplejpeg 1.9.0` or `opencv 5.0.0`."""
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
        # The frame header has been read before, by us; should libjpeg read another size, it raises.
        buffer = scratch if scratch is not None and 0 < 3 * width * height <= scratch.size else None
        if scale == 1:
            return decode_jpeg(data, buffer=buffer, strict=strict)  # type: ignore[no-any-return]
        width, height = -(-width // scale), -(-height // scale)
        return decode_jpeg(  # type: ignore[no-any-return]
            data, min_width=width, min_height=height, min_factor=1, buffer=buffer, strict=strict
        )

    return decode
