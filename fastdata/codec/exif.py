"""The orientation of an image, 1 to 8, from an EXIF block (a TIFF header and its first directory) or an XMP packet.

A block without an orientation gives 0, one with an invalid orientation INVALID, so that later blocks are tried: corrupt
EXIF is never an error. EXIF comes first; XMP counts only if no EXIF block has a value at all, as in Pillow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from struct import error as struct_error
from struct import unpack_from

from fastdata.codec.info import Data

INVALID = -1
# What the APP1 segment of a JPEG that holds XMP begins with.
XMP = b"http://ns.adobe.com/xap/1.0/\0"
_ORIENTATION = 0x0112
# An attribute or an element. As in Pillow, the XML is searched, not parsed.
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
# EXIF prescribes SHORT; some writers use BYTE or LONG. Type -> format code of the value.
_CODES = {1: "B", 3: "H", 4: "I"}


def orientation(data: Data, start: int, end: int) -> int:
    """The orientation in the EXIF block at data[start:end], which may begin with `Exif\\0\\0`."""
    if data[start : start + 4] == b"Exif":
        start += 6
    order = "<" if data[start : start + 2] == b"II" else ">"
    try:
        magic, first = unpack_from(order + "2xHI", data, start)
        if magic != 42:
            return 0
        at = start + first
        (count,) = unpack_from(order + "H", data, at)
        for entry in range(at + 2, min(at + 2 + count * 12, end - 11), 12):
            tag, kind = unpack_from(order + "HH", data, entry)
            if tag == _ORIENTATION:
                value = unpack_from(order + _CODES.get(kind, "H"), data, entry + 8)[0]
                return value if 1 <= value <= 8 else INVALID
    except struct_error:  # the block ends before its directory does
        return 0
    return 0


def xmp_orientation(packet: Data) -> int:
    """The orientation in an XMP packet, 1 if it has none."""
    found = _IN_XMP.search(packet)
    value = int(found[1]) if found else 1
    return value if 1 <= value <= 8 else 1


def app1_orientation(bodies: Iterable[bytes]) -> int:
    """The orientation in the APP1 segments of a JPEG: the first in EXIF, else that of the last XMP packet."""
    turn, packet = 0, b""
    for body in bodies:
        if body[:4] == b"Exif":
            turn = turn if turn > 0 else orientation(body, 0, len(body)) or turn
        elif body.startswith(XMP):
            packet = body
    return max(turn, 1) if turn or not packet else xmp_orientation(packet)
