"""Headers of a few numbers each: BMP, GIF, ICO, Netpbm and npy."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from struct import unpack_from

import numpy as np

from fastdata.codec.headers import png
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import CutError, DecodeError, UnsupportedError


def read_bmp(data: Data) -> ImageInfo:
    """Read a BMP. All rows must be there; a negative height means that they run top-down."""
    offset, header = unpack_from("<II", data, 10)
    if len(data) < 14 + header or len(data) < 26:
        raise CutError("the data end within the BMP's header")
    if header == 12:
        width, height, _, bits = unpack_from("<HHHH", data, 18)
        compression = stated = 0
    else:
        width, height, _, bits = unpack_from("<iiHH", data, 18)
        compression, stated = unpack_from("<II", data, 30) if header >= 40 else (0, 0)
    height = abs(height)
    if width <= 0 or not height or bits not in (1, 2, 4, 8, 16, 24, 32):
        raise DecodeError(f"the BMP claims {width} x {height} pixels of {bits} bits")
    if compression in (4, 5):
        raise UnsupportedError("a BMP that wraps a JPEG or PNG is not read; unwrap it first")
    needed = stated if compression in (1, 2) else (width * bits + 31) // 32 * 4 * height
    cut = "the BMP's data end before its last row" if offset + needed > len(data) else ""
    alpha = bits == 32 and header >= 56 and unpack_from("<I", data, 66)[0] != 0
    mode = "palette" if bits <= 8 else "rgb" if not compression else "packed"
    return ImageInfo("bmp", width, height, 1, bits, mode, alpha, cut=cut)


def read_gif(data: Data) -> ImageInfo:
    """Read a GIF to the end of its first frame; what follows is ignored."""
    if len(data) < 13:
        raise CutError("the data end within the GIF's header")
    width, height, flags = unpack_from("<HHB", data, 6)
    at, alpha, frames, cut = 13 + _colors(flags), False, 0, "the GIF's data end within its first frame"
    while at < len(data) and data[at] != 0x3B:
        if data[at] == 0x2C and at + 10 <= len(data):
            frames += 1
            if frames > 1:
                break
            left, top, w, h, flags = unpack_from("<HHHHB", data, at + 1)
            width, height = max(width, left + w), max(height, top + h)
            at = _blocks_end(data, at + 11 + _colors(flags))
            cut = "" if at <= len(data) else cut
        elif data[at] == 0x21 and at + 4 <= len(data):
            alpha = alpha or (not frames and data[at + 1] == 0xF9 and bool(data[at + 3] & 1))
            at = _blocks_end(data, at + 2)
        else:
            break
    if not frames and at < len(data) and data[at] not in (0x21, 0x2C):
        raise DecodeError("the GIF has no frame in it")
    if not width or not height:
        raise DecodeError(f"the GIF claims {width} x {height} pixels")
    return ImageInfo("gif", width, height, 1, 8, "palette", alpha, frames > 1, cut=cut)


def _colors(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _blocks_end(data: Data, at: int) -> int:
    """Where a chain of sub-blocks ends; beyond the data if it is cut."""
    size = len(data)
    while at < size and data[at]:
        at += 1 + data[at]
    return at + 1


def read_ico(data: Data) -> ImageInfo:
    """Read an ICO: the header of the largest image in it, since the directory may be wrong."""
    count = unpack_from("<H", data, 4)[0]
    if 6 + count * 16 > len(data):
        raise CutError("the ICO's data end within its directory")
    entries = [unpack_from("<BBBBHHII", data, at) for at in range(6, 6 + count * 16, 16)]
    found = []
    for side, tall, _, _, _, bits, size, offset in entries:
        if offset + size > len(data):
            raise CutError("the ICO's data end before its images do")
        found.append(((side or 256) * (tall or 256), bits, _icon(memoryview(data)[offset : offset + size])))
    best = max(found, key=lambda entry: entry[:2])[2]
    claimed = max(info.width * info.height for _, _, info in found)  # whichever of them a decoder picks
    return replace(best, format="ico", alpha=True, animated=count > 1, orientation=1, claimed=claimed)


def _icon(data: memoryview) -> ImageInfo:
    """One image of an icon: a PNG, or a BMP without its file header, whose height counts the mask too."""
    if bytes(data[:8]) == b"\x89PNG\r\n\x1a\n":
        return png.read(data)
    width, height, _, bits = unpack_from("<iiHH", data, 4)
    if width <= 0 or height == 0:
        raise DecodeError(f"the ICO claims {width} x {height} pixels")
    return ImageInfo("bmp", width, abs(height) // 2 or 1, 1, bits)


# A header's number: white space and comments before it, one white space after it.
_NUMBER = re.compile(rb"(?:\s|#[^\r\n]*[\r\n])*(\d{1,10})(?=\s|#|\Z)")


def read_netpbm(data: Data) -> ImageInfo:
    """Read a PBM, PGM or PPM, plain or raw."""
    # Comments are the only part of the header that can be long; no program writes 64 KiB of them.
    head = bytes(data[: 1 << 16])
    digit, at, numbers = head[1] - 48, 2, []
    for _ in range(2 if digit in (1, 4) else 3):
        match = _NUMBER.match(head, at)
        if not match:
            raise DecodeError("the Netpbm header is not made of numbers")
        numbers.append(int(match[1]))
        at = match.end()
    width, height, most = (*numbers, 1)[:3]
    if not width or not height or not 0 < most < 65536:
        raise DecodeError(f"the Netpbm image claims {width} x {height} pixels of {most + 1} levels")
    channels = 3 if digit in (3, 6) else 1
    row = (width + 7) // 8 if digit == 4 else width * channels * (2 if most > 255 else 1)
    needed = row * height if digit > 3 else width * height * channels * (1 if digit == 1 else 2) - 1
    name = {1: "pbm", 4: "pbm", 2: "pgm", 5: "pgm"}.get(digit, "ppm")
    cut = "the Netpbm data end before the last row" if at + 1 + needed > len(data) else ""
    # Text and other maxima than 255 and 65535 are valid; they are marked, because not every decoder scales them.
    odd = digit < 4 or (digit > 4 and most not in (255, 65535))
    mode = "scaled" if odd else "rgb" if channels == 3 else "gray"
    return ImageInfo(name, width, height, 1, most.bit_length(), mode, cut=cut)


# The longest side that an array may have; a header could hold numbers of thousands of digits.
_LONGEST_NPY = 2**63 - 1


def read_npy(data: Data) -> ImageInfo:
    """Read a numpy file of uint8 pixels: H x W, or H x W x 1, 3 or 4."""
    shape, _, offset = npy_layout(data)
    channels = shape[2] if len(shape) == 3 else 1
    cut = "the npy file's data end before its last row" if offset + math.prod(shape) > len(data) else ""
    mode = "gray" if channels == 1 else "rgb"
    return ImageInfo("npy", shape[1], shape[0], 1, 8, mode, channels == 4, cut=cut)


def npy_layout(data: Data) -> tuple[tuple[int, ...], bool, int]:
    """The shape, whether it is in Fortran order, and the offset of the pixels.

    Raises:
        DecodeError: not uint8, not shaped like an image, or not a numpy header.
    """
    # A header of ours is 128 bytes; numpy itself refuses headers above 10,000.
    stream = io.BytesIO(bytes(data[: 1 << 14]))
    try:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} of the npy format")
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(stream)
    except Exception as error:
        raise DecodeError(f"the npy header cannot be read: {str(error).splitlines()[0][:200]}") from error
    if dtype != np.uint8:
        raise DecodeError(f"the npy file holds {dtype}, not the uint8 pixels that are read here")
    sides = all(type(side) is int and 0 < side <= _LONGEST_NPY for side in shape)  # True is an int to numpy
    if not sides or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise DecodeError(f"the npy file has the shape {shape!r:.200}, not H x W x 3 (or H x W)")
    return shape, fortran, stream.tell()
