"""PNG's chunks: header, transparency, EXIF and animation, and whether they reach IEND."""

from __future__ import annotations

import zlib
from struct import unpack_from

from fastdata.codec.exif import orientation
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import CutError, DecodeError, UnsupportedError

_MODES = {0: "gray", 2: "rgb", 3: "palette", 4: "gray", 6: "rgb"}
_PIXEL_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT"})


def read(data: Data) -> ImageInfo:
    """Walks all chunks, because EXIF may follow the pixels."""
    if data[12:16] == b"CgBI":
        raise UnsupportedError("a PNG in Apple's private CgBI form is not read; save it as an ordinary PNG first")
    if len(data) < 33:
        raise CutError("the data end within the PNG's header")
    if data[12:16] != b"IHDR":
        raise DecodeError("the PNG does not begin with its header")
    width, height, bits, color = unpack_from(">IIBB", data, 16)
    if not 0 < width < 2**31 or not 0 < height < 2**31 or color not in _MODES:
        raise DecodeError(f"the PNG claims {width} x {height} pixels of colour type {color}")
    turn, alpha, animated, at, cut = 1, color >= 4, False, 33, "the PNG's data end before its IEND chunk"
    while at + 12 <= len(data):
        length, name = unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            break
        if name == b"IEND":
            cut = ""
            break
        if name == b"eXIf":
            turn = orientation(data, at + 8, at + 8 + length)
        alpha, animated = alpha or name == b"tRNS", animated or name == b"acTL"
        at += 12 + length
    return ImageInfo("png", width, height, turn, bits, _MODES[color], alpha, animated, True, cut)


def damage(data: Data) -> str:
    """ "" or which chunk's checksum does not fit, among the chunks that make the pixels.

    libpng would find the same, but prints it; here it becomes words that the caller can pass on.
    """
    at, view = 8, memoryview(data)
    while at + 12 <= len(data):
        length, name = unpack_from(">I4s", data, at)
        end = at + 8 + length
        if end + 4 > len(data) or name == b"IEND":
            break
        if name in _PIXEL_CHUNKS and zlib.crc32(view[at + 4 : end]) != unpack_from(">I", data, end)[0]:
            return f"the PNG is damaged: the checksum of its chunk {name.decode()} does not fit"
        at = end + 4
    return ""
