"""The one EXIF value that decoding needs: how a picture is to be turned.

Flows in: an EXIF block (a TIFF header and its first directory). Flows out: 1 to 8, and 0 for a block that does not
tell, so that a later one may: a damaged EXIF block never costs a picture.
"""

from __future__ import annotations

from struct import error as struct_error
from struct import unpack_from

from fastdata.codec.info import Data

_ORIENTATION = 0x0112
# EXIF says SHORT; some writers use BYTE or LONG. Type -> format code of the value.
_CODES = {1: "B", 3: "H", 4: "I"}


def orientation(data: Data, start: int, end: int) -> int:
    """The orientation in the EXIF block at data[start:end], which may begin with `Exif\\0\\0`; 0 for none."""
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
                return value if 1 <= value <= 8 else 0
    except struct_error:  # the block ends before its directory does
        return 0
    return 0
