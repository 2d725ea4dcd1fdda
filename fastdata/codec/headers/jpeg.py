"""JPEG's header: segments up to the first scan, how many scans there are, and whether an end marker follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct, unpack_from

from fastdata.codec.exif import XMP, orientation, xmp_orientation
from fastdata.codec.info import Data, ImageInfo
from fastdata.codec.kinds import UNSUPPORTED
from fastdata.errors import CutError, DecodeError, TooLargeError, UnsupportedError

# Encoders make about 10 scans, those that search for the best order a few dozen. Each is a pass over the whole image,
# whatever its length in bytes: a thousand scans in a file of some kB would take minutes to decode.
MOST_SCANS = 200
_EOI = b"\xff\xd9"
_SOS = b"\xff\xda"
# A marker within entropy-coded data: neither a stuffed byte nor a fill byte nor a restart.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length: TEM, RST0-7, SOI
_LAST = frozenset({0xD9, 0xDA})  # EOI, SOS: no segment of the header follows
_MIDDLE = bytes(marker not in (0x00, 0xFF) and marker not in _STANDALONE | _LAST for marker in range(256))
_segment = Struct(">BBH").unpack_from
_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_MODES = {1: "gray", 3: "rgb", 4: "cmyk"}


def segments(data: Data, at: int = 2) -> Iterator[tuple[int, int, int]]:
    """The segments of a JPEG's header: marker, offset of the marker, and the stated length.

    The last one is that of the first scan (0xDA) or the end marker (0xD9), unless the data end before. Fill bytes,
    garbage between segments, and markers without a length are skipped, as in libjpeg.

    Args:
        data: the JPEG.
        at: where the first segment begins; by default after SOI.
    """
    last = len(data) - 4
    while at <= last:
        prefix, marker, length = _segment(data, at)
        if prefix == 0xFF and _MIDDLE[marker]:
            yield marker, at, length
            at += 2 + length if length > 2 else 4
        elif prefix != 0xFF or marker == 0x00:
            data = bytes(data)
            at = data.find(b"\xff", at + 1)
            if at < 0:
                return
        elif marker in _LAST:
            yield marker, at, length
            return
        else:
            at += 1 if marker == 0xFF else 2


def read(data: Data) -> ImageInfo:
    """Read the segments up to the first scan. Every image takes this path: about 4 us for a common file."""
    turn, frame, packet = 0, (0, 0, 0, 0, 0), slice(0)
    for marker, at, length in segments(data):
        if marker in _FRAMES:
            if at + 10 <= len(data):
                frame = (marker, *unpack_from(">BHHB", data, at + 4))
        elif marker == 0xE1:
            if turn > 0:
                continue
            name = data[at + 4 : at + 8]
            if name == b"Exif":
                turn = orientation(data, at + 4, at + 2 + length) or turn
            elif name == b"http" and data[at + 4 : at + 4 + len(XMP)] == XMP:
                packet = slice(at + 4 + len(XMP), at + 2 + length)  # the last one counts, as in Pillow
        elif marker == 0xDA:
            return _info(data, at, frame, _turn(data, turn, packet))
        elif marker == 0xD9:
            raise DecodeError("the JPEG ends before any image data")
        elif marker == 0xF7:
            raise UnsupportedError(UNSUPPORTED["jls"])
    if not frame[0]:
        raise CutError("the data end within the JPEG's header")
    return _info(data, len(data), frame, _turn(data, turn, packet))


def _turn(data: Data, turn: int, packet: slice) -> int:
    """The orientation in EXIF, or else in XMP, which is searched only if it counts."""
    if turn or packet.stop == 0:
        return max(turn, 1)
    return xmp_orientation(data[packet])


def _info(data: Data, scan: int, frame: tuple[int, int, int, int, int], turn: int) -> ImageInfo:
    marker, bits, height, width, channels = frame
    if not marker:
        raise DecodeError("the JPEG has no frame header")
    if bits != 8:
        raise UnsupportedError(f"a JPEG of {bits} bits a sample is not read; convert it to PNG first")
    if not height:
        raise UnsupportedError("a JPEG whose height comes after its data (DNL) is not read; re-save it first")
    if not width or channels not in _MODES:
        raise DecodeError(f"the JPEG claims {width} x {height} pixels of {channels} colours")
    if marker in _PROGRESSIVE or (scan + 4 < len(data) and data[scan + 4] != channels):  # else there is one scan
        _check_scans(data, scan)
    cut = _cut(data, scan)
    return ImageInfo("jpg", width, height, turn, 8, _MODES[channels], False, False, marker in _LOSSLESS, cut)


def _cut(data: Data, scan: int) -> str:
    # Entropy-coded data cannot hold FF D9, so one after the scan's start is the end marker, whatever follows it
    # (motion photos, padding). One in an EXIF thumbnail lies before the scan and does not count.
    if scan + 4 <= len(data) and (data[-2:] == _EOI or bytes(data[scan:]).find(_EOI) >= 0):
        return ""
    return "the JPEG's data end before its end marker"


def _check_scans(data: Data, scan: int) -> None:
    """Refuse a JPEG of so many scans that decoding it would take minutes."""
    data = bytes(data)
    if data.count(_SOS, scan) <= MOST_SCANS:
        return
    scans, at = 0, scan
    while at + 4 <= len(data) and data[at + 1] != _EOI[1]:  # what follows the end, such as a video, has no scans
        marker, length = unpack_from(">xBH", data, at)
        scans += marker == _SOS[1]
        if scans > MOST_SCANS:
            raise TooLargeError(
                f"the JPEG has more than {MOST_SCANS} scans, each of which is a pass over the image; re-save it first"
            )
        found = _MARKER.search(data, at + 2 if marker in _STANDALONE else at + 2 + max(length, 2))
        at = found.start() if found else len(data)
