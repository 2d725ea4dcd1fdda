"""PNG's chunks: header, transparency, EXIF and animation, and whether they reach IEND."""

from __future__ import annotations

import zlib
from struct import unpack_from

from fastdata.codec.exif import orientation, xmp_orientation
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import CutError, DecodeError, UnsupportedError

_MODES = {0: "gray", 2: "rgb", 3: "palette", 4: "gray", 6: "rgb"}
_PIXEL_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_TEXT_CHUNKS = frozenset({b"tEXt", b"zTXt", b"iTXt"})
# Keywords of texts that may hold an orientation: EXIF in hex digits, as ImageMagick wrote it, and XMP.
_EXIF, _XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"
# No more of an inflated text is read; Pillow has the same limit.
_MOST_TEXT = 1 << 20


def read(data: Data) -> ImageInfo:
    """Read all chunks, because EXIF may follow the pixels."""
    if data[12:16] == b"CgBI":
        raise UnsupportedError("a PNG in Apple's private CgBI form is not read; save it as an ordinary PNG first")
    if len(data) < 33:
        raise CutError("the data end within the PNG's header")
    if data[12:16] != b"IHDR":
        raise DecodeError("the PNG does not begin with its header")
    width, height, bits, color = unpack_from(">IIBB", data, 16)
    if not 0 < width < 2**31 or not 0 < height < 2**31 or color not in _MODES:
        raise DecodeError(f"the PNG claims {width} x {height} pixels of colour type {color}")
    turn, alpha, animated, at, cut = 0, color >= 4, False, 33, "the PNG's data end before its IEND chunk"
    colors, texts = color != 3, dict[bytes, tuple[bytes, int, int]]()
    while at + 12 <= len(data):
        length, name = unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            break
        if name == b"IEND":
            cut = ""
            break
        if name == b"IDAT" and not colors:
            raise DecodeError("the PNG has no palette before its pixels, which are palette indices")
        colors = colors or name == b"PLTE"
        if name == b"eXIf":
            turn = orientation(data, at + 8, at + 8 + length) or turn
        elif name in _TEXT_CHUNKS:
            keyword = bytes(data[at + 8 : at + 30]).partition(b"\0")[0]
            texts[keyword] = name, at + 8, at + 8 + length
        alpha, animated = alpha or name == b"tRNS", animated or name == b"acTL"
        at += 12 + length
    turn = max(turn or _text_orientation(data, texts), 1)
    return ImageInfo("png", width, height, turn, bits, _MODES[color], alpha, animated, True, cut)


def _text_orientation(data: Data, texts: dict[bytes, tuple[bytes, int, int]]) -> int:
    """The orientation in texts, EXIF before XMP; 0 if there is none."""
    turn = 0
    if _EXIF in texts:
        try:
            block = bytes.fromhex(b"".join(_text(data, *texts[_EXIF]).split(b"\n")[3:]).decode("ascii"))
        except ValueError:  # corrupt EXIF is ignored, as in other files
            block = b""
        turn = orientation(block, 0, len(block))
    return turn or (xmp_orientation(_text(data, *texts[_XMP])) if _XMP in texts else 0)


def _text(data: Data, name: bytes, start: int, end: int) -> bytes:
    """The text of a text chunk; empty if it cannot be inflated."""
    body = bytes(data[start:end]).partition(b"\0")[2]
    packed = name == b"zTXt" or (name == b"iTXt" and body[:1] == b"\1")
    if name == b"iTXt":  # flag, method, language and translated keyword come first
        body = body[2:].partition(b"\0")[2].partition(b"\0")[2]
    if not packed:
        return body
    body = body[1:] if name == b"zTXt" else body
    try:
        return zlib.decompressobj().decompress(body, _MOST_TEXT)
    except zlib.error:
        return b""


def pixels_only(data: Data) -> tuple[Data, str]:
    """The PNG reduced to the chunks that pixels need, and the first corrupt one ("" if none).

    libpng would find damage too, but it prints it, as it prints warnings about colour profiles, and refuses images for
    damage outside the pixels. The first frame of an animated PNG is kept.
    """
    at, size, view, kept = 8, len(data), memoryview(data), [memoryview(data)[:8]]
    while at + 12 <= size:
        length, name = unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > size:
            break
        if name in _PIXEL_CHUNKS:
            if zlib.crc32(view[at + 4 : end - 4]) != unpack_from(">I", data, end - 4)[0]:
                return data, f"the PNG is damaged: the checksum of its chunk {name.decode()} does not fit"
            kept.append(view[at:end])
        at = end
        if name == b"IEND":
            break
    return (data if sum(map(len, kept)) == size else b"".join(kept)), ""


def clear_level(data: Data, bits: int) -> int:
    """The one level of a gray PNG that is transparent (`tRNS`), as a sample of 8 or 16 bits; -1 if there is none."""
    at, most = 33, (1 << bits) - 1
    while at + 14 <= len(data):
        length, name, level = unpack_from(">I4sH", data, at)
        if name == b"tRNS":
            return int(level) * 255 // most if bits < 8 else int(level)
        at += 12 + length
    return -1
