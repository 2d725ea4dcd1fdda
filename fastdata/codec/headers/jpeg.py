"""JPEG's header: segments up to the first scan, how many scans there are, and whether an end marker follows."""

from __future__ import annotations

import re
from struct import unpack_from

from fastdata.codec.exif import XMP, orientation, xmp_orientation
from fastdata.codec.info import Data, ImageInfo
from fastdata.codec.kinds import UNSUPPORTED
from fastdata.errors import CutError, DecodeError, TooLargeError, UnsupportedError

# Encoders make about 10 scans, those that search for the best order a few dozen. Each is a pass over the whole image,
# whatever its length in bytes: a thousand of them would be minutes of work in a file of some kB.
MOST_SCANS = 200
_EOI = b"\xff\xd9"
_SOS = b"\xff\xda"
# A marker within entropy-coded data: neither a stuffed byte nor a fill byte nor a restart.
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length: TEM, RST0-7, SOI
_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_LOSSLESS = frozenset({0xC3, 0xC7, 0xCB, 0xCF})
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_MODES = {1: "gray", 3: "rgb", 4: "cmyk"}


def read(data: Data) -> ImageInfo:
    """Walks the segments; about 4 us for a common file, since this is the path of every training image."""
    at, size, turn, frame, packet = 2, len(data), 0, (0, 0, 0, 0, 0), slice(0)
    while at + 4 <= size:
        prefix, marker, length = unpack_from(">BBH", data, at)
        if prefix != 0xFF or marker == 0:  # libjpeg skips rubbish between segments too
            data = bytes(data)
            at = data.find(b"\xff", at + 1)
            if at < 0:
                break
            continue
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in _STANDALONE:
            at += 2
            continue
        if marker == 0xDA:
            return _info(data, at, frame, _turn(data, turn, packet))
        if marker == 0xD9:
            raise DecodeError("the JPEG ends before any picture data")
        if marker == 0xF7:
            raise UnsupportedError(UNSUPPORTED["jls"])
        if marker in _FRAMES and at + 10 <= size:
            frame = (marker, *unpack_from(">BHHB", data, at + 4))
        elif marker == 0xE1 and turn <= 0:
            name = data[at + 4 : at + 8]
            if name == b"Exif":
                turn = orientation(data, at + 4, at + 2 + length) or turn
            elif name == b"http" and data[at + 4 : at + 4 + len(XMP)] == XMP:
                packet = slice(at + 4 + len(XMP), at + 2 + length)  # the last one counts, as in Pillow
        at += 2 + max(length, 2)
    if not frame[0]:
        raise CutError("the data end within the JPEG's header")
    return _info(data, size, frame, _turn(data, turn, packet))


def _turn(data: Data, turn: int, packet: slice) -> int:
    """What EXIF says, or else XMP: looked at only where it counts."""
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
        raise UnsupportedError("a JPEG whose height comes after its data (DNL) is not read; write it anew first")
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
    """Refuse what would be decoded over and over again."""
    data = bytes(data)
    if data.count(_SOS, scan) <= MOST_SCANS:
        return
    scans, at = 0, scan
    while at + 4 <= len(data) and data[at + 1] != _EOI[1]:  # what follows the end, such as a video, has no scans
        marker, length = unpack_from(">xBH", data, at)
        scans += marker == _SOS[1]
        if scans > MOST_SCANS:
            raise TooLargeError(
                f"the JPEG has more than {MOST_SCANS} scans, each of which is a pass over the image; save it anew first"
            )
        found = _MARKER.search(data, at + 2 if marker in _STANDALONE else at + 2 + max(length, 2))
        at = found.start() if found else len(data)
