"""The one value that decoding needs of EXIF and XMP: how an image is to be turned.

Flows in: an EXIF block (a TIFF header and its first directory) or an XMP packet. Flows out: 1 to 8; 0 for a block that
does not tell, and SENSELESS for one that tells nonsense, so that a later one may: a damaged block never costs an image.
EXIF comes first; XMP counts where no EXIF block has a value at all, as in Pillow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from struct import error as struct_error
from struct import unpack_from

from fastdata.codec.info import Data

SENSELESS = -1
# What the APP1 segment of a JPEG that holds XMP begins with.
XMP = b"http://ns.adobe.com/xap/1.0/\0"
_ORIENTATION = 0x0112
# As an attribute or an element; nothing else is looked for, as in Pillow: a packet is no reason to parse XML.
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
# EXIF says SHORT; some writers use BYTE or LONG. Type -> format code of the value.
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
                return value if 1 <= value <= 8 else SENSELESS
    except struct_error:  # the block ends before its directory does
        return 0
    return 0


def xmp_orientation(packet: Data) -> int:
    """The orientation that an XMP packet states, 1 where it states none."""
    found = _IN_XMP.search(packet)
    value = int(found[1]) if found else 1
    return value if 1 <= value <= 8 else 1


def app1_orientation(bodies: Iterable[bytes]) -> int:
    """The orientation that APP1 segments of a JPEG state: the first EXIF that tells, else the last XMP."""
    turn, packet = 0, b""
    for body in bodies:
        if body[:4] == b"Exif":
            turn = turn if turn > 0 else orientation(body, 0, len(body)) or turn
        elif body.startswith(XMP):
            packet = body
    return max(turn, 1) if turn or not packet else xmp_orientation(packet)
