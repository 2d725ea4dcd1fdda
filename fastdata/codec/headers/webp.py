"""WebP's chunks: canvas and frame sizes, transparency, EXIF, animation, and whether the data are complete."""

from __future__ import annotations

from struct import unpack_from

from fastdata.codec.exif import orientation, xmp_orientation
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import CutError, DecodeError


def read(data: Data) -> ImageInfo:
    """Read all chunks: EXIF comes last, and a frame may be larger than the stated canvas."""
    size = len(data)
    if size < 30:
        raise CutError("the data end within the WebP's header")
    end = 8 + unpack_from("<I", data, 4)[0]
    cut = "the WebP's data end before its stated length" if end > size else ""
    width = height = claimed = 0
    turn, alpha, animated, lossless, at, packet = 0, False, False, False, 12, slice(0)
    while at + 8 <= min(end, size):
        name, length = unpack_from("<4sI", data, at)
        body = at + 8
        found = _frame(data, name, body) if body + 10 <= size else None
        if found:
            claimed = max(claimed, found[0] * found[1])
            width, height = (width, height) if width else found[:2]
            alpha = alpha or found[2]
        if name == b"VP8X" and body < size:
            animated = bool(data[body] & 2)
        elif name == b"ALPH":
            alpha = True
        elif name == b"VP8L":
            lossless = True
        elif name == b"EXIF":
            turn = orientation(data, body, min(body + length, size)) or turn
        elif name == b"XMP ":
            packet = slice(body, body + length)
        at = body + length + (length & 1)
    if not width or not height:
        raise DecodeError("the WebP has no image in it")
    turn = turn or xmp_orientation(data[packet])
    return ImageInfo("webp", width, height, max(turn, 1), 8, "rgb", alpha, animated, lossless, cut, claimed)


def _frame(data: Data, name: bytes, at: int) -> tuple[int, int, bool] | None:
    """Width, height and transparency that one chunk states, None if it states none."""
    if name == b"VP8X":
        flags, width, height = unpack_from("<B", data, at)[0], _u24(data, at + 4), _u24(data, at + 7)
        return width + 1, height + 1, bool(flags & 0x10)
    if name == b"VP8 " and data[at + 3 : at + 6] == b"\x9d\x01\x2a":
        width, height = unpack_from("<HH", data, at + 6)
        return width & 0x3FFF, height & 0x3FFF, False
    if name == b"VP8L" and data[at] == 0x2F:
        packed = unpack_from("<I", data, at + 1)[0]
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, bool(packed >> 28 & 1)
    if name == b"ANMF" and at + 16 <= len(data):
        return _u24(data, at + 6) + 1, _u24(data, at + 9) + 1, False
    return None


def _u24(data: Data, at: int) -> int:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16
