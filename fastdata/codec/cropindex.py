"""The crop index: cut the part of a JPEG that covers a box, so that only that part is decoded.

Restart markers every few MCUs divide a JPEG into intervals that decode on their own. The intervals that cover a box,
with the size in the frame header patched and the markers renumbered, form a small JPEG. With a margin of one pixel
(`scale` pixels when decoded at 1/scale) and a width of more than 4 * scale pixels, its pixels inside the box are bit
for bit those of the whole image: chroma upsampling reads one neighbouring pixel, and libjpeg upsamples very narrow
images differently.

`embed` stores the lengths of the intervals in an APP9 segment directly after SOI, which every other program skips:

    FF D8                SOI
    FF E9, length u16    APP9 (big-endian length, as JPEG has it)
    "FDCROP" 00          identifier
    01                   version u8
    scan u32             from the end of this segment to the first byte of entropy-coded data
    crc u32              CRC-32 of `scan` and `lengths`
    lengths u16 ...      bytes of each interval with the marker that ends it (RSTn, the last one EOI)

Numbers after the identifier are little-endian. Nothing else is stored: size, sampling and interval are read from the
JPEG's own header, so they cannot contradict it. An index is checked in full before it is used; a JPEG that has restart
markers but no valid index is scanned for them.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.exif import app1_orientation
from fastdata.codec.headers.jpeg import segments
from fastdata.codec.info import Data
from fastdata.size import Size

Box = tuple[int, int, int, int]

IDENTIFIER = b"FDCROP\0"
VERSION = 1
_USUAL_HEADER = 1500  # bytes; those with EXIF or ICC are longer, differ from each other, and would fill memory
_HEAD = struct.Struct("<7sBII")  # identifier, version, scan, crc
_SIZE = struct.Struct(">HH")  # height, width, as the frame header has them
_SEGMENT_AT = 6  # behind SOI, the marker and the length
# A segment holds 65,533 bytes behind its length, so this many lengths; `restart_interval` keeps below it.
MAX_INTERVALS = (65533 - _HEAD.size) // 2
_NUMBERS = (0xD0 + (np.arange(MAX_INTERVALS + 1) & 7)).astype(np.uint8)
_MARKERS = ((_NUMBERS.astype(np.uint16) << 8) | 0xFF).astype("<u2").tobytes()  # FF D0 FF D1 ...
_U16 = np.dtype("<u2")


def restart_interval(width: int, height: int, mcu: tuple[int, int] = (16, 16)) -> int:
    """The restart interval, in MCUs, to encode an image with: a divisor of the row's MCU count.

    The largest one that is at most 4, or an eighth of the row where that is more: measured to cut best for its bytes.
    Rows with a prime count get 1, which costs bytes and no speed. Raised until the index fits one segment.
    """
    row, rows = -(-width // mcu[0]), -(-height // mcu[1])
    best = max(d for d in range(1, max(4, row // 8) + 1) if row % d == 0)
    while (row // best) * rows > MAX_INTERVALS and best < row:
        best = min(d for d in range(best + 1, row + 1) if row % d == 0)
    return best


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a JPEG that can be cut.

    Attributes:
        size: as stored.
        across: the pixels that one interval covers in a row (the whole row where intervals are rows).
        down: the pixel rows that one row of intervals covers.
        columns, rows: the grid of intervals.
        head: SOI and the segments that a cut keeps, up to the entropy-coded data.
        size_at: where height and width stand in `head`.
        plain: gray or three colours, and stored upright, so that a cut is a part of the upright image.
    """

    size: Size
    across: int
    down: int
    columns: int
    rows: int
    head: bytes
    size_at: int
    plain: bool


def parse_header(header: bytes) -> Header | None:
    """Read the segments between SOI (or the index) and the entropy-coded data; None if the JPEG cannot be cut.

    A baseline or extended sequential Huffman JPEG of 8 bits in one scan can be cut if its restart interval divides the
    MCU row or is a multiple of it.
    """
    return _parsed_cached(header) if len(header) <= _USUAL_HEADER else _parsed(header)


def _parsed(data: bytes) -> Header | None:
    end, kept, size_at, interval, frame, app1 = 0, [b"\xff\xd8"], 0, 0, b"", list[bytes]()
    for kind, start, length in segments(data, 0):
        if length < 2 or start + 2 + length > len(data) or data[end:start].strip(b"\xff"):
            return None  # not even fill bytes between segments
        end = start + 2 + length
        if kind in (0xC0, 0xC1):
            body = data[start + 4 : end]
            if frame or len(body) < 9 or len(body) != 6 + 3 * body[5] or body[0] != 8:
                return None
            frame, size_at = body, sum(map(len, kept)) + 5
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8):
            return None  # progressive, lossless, arithmetic
        elif kind == 0xDD and length == 4:
            interval = int.from_bytes(data[start + 4 : end], "big")
        elif kind == 0xE1:
            app1.append(data[start + 4 : end])
        if (not 0xE1 <= kind <= 0xEF and kind != 0xFE) or kind == 0xEE:
            kept.append(data[start:end])  # all but APP1..APP15 and comments; Adobe's APP14 names the colours
        if kind == 0xDA:
            # One scan of all colours, which ends the header.
            whole = frame and interval and end == len(data) and data[start + 4 : start + 5] == frame[5:6]
            whole = whole and length == 6 + 2 * frame[5]
            return _grid(frame, interval, b"".join(kept), size_at, app1_orientation(app1)) if whole else None
    return None


# Images of equal size and quality share their header; each entry takes some 2 kB.
_parsed_cached = lru_cache(maxsize=2048)(_parsed)


def _grid(frame: bytes, interval: int, head: bytes, size_at: int, turn: int) -> Header | None:
    height, width, components = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big"), frame[5]
    factors = [(frame[7 + 3 * c] >> 4, frame[7 + 3 * c] & 15) for c in range(components)]
    if not width or not height or any(not 1 <= f <= 4 for pair in factors for f in pair):
        return None
    # One component alone is coded block by block, whatever its sampling factors are.
    across, down = (8, 8) if components == 1 else (8 * max(h for h, _ in factors), 8 * max(v for _, v in factors))
    row, rows = -(-width // across), -(-height // down)
    plain = components in (1, 3) and turn <= 1
    if row % interval == 0:
        return Header(Size(height, width), across * interval, down, row // interval, rows, head, size_at, plain)
    if interval % row == 0:
        bands = interval // row
        return Header(Size(height, width), across * row, down * bands, 1, -(-rows // bands), head, size_at, plain)
    return None


def embed(jpeg: bytes) -> bytes:
    """Add the crop index to a JPEG. One that has an index, cannot be cut, or whose index would not fit is unchanged."""
    found = None if jpeg[2:4] == b"\xff\xe9" else _scanned(jpeg)
    if found is None:
        return jpeg
    start, lengths = int(found.bounds[0]), np.diff(found.bounds)
    if len(lengths) > MAX_INTERVALS or lengths.max() > 65535:
        return jpeg
    blob = lengths.astype("<u2").tobytes()
    scan = start - 2
    crc = zlib.crc32(blob, zlib.crc32(scan.to_bytes(4, "little")))
    segment = _HEAD.pack(IDENTIFIER, VERSION, scan, crc) + blob
    return b"\xff\xd8\xff\xe9" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]


class Cuttable(NamedTuple):
    """A JPEG whose intervals are known: interval k is the bytes `bounds[k]` .. `bounds[k + 1]`."""

    jpeg: memoryview
    header: Header
    bounds: NDArray[np.int64]


def load(jpeg: Data) -> Cuttable | None:
    """Find the intervals of a JPEG, by its index or by scanning; None if it must be decoded whole."""
    view = memoryview(jpeg)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    return _indexed(view) or _scanned(view)


def _indexed(view: memoryview) -> Cuttable | None:
    if len(view) < _SEGMENT_AT + _HEAD.size or view[2] != 0xFF or view[3] != 0xE9:
        return None
    identifier, version, scan, crc = _HEAD.unpack_from(view, _SEGMENT_AT)
    end = 4 + (view[4] << 8 | view[5])
    blob, start = view[_SEGMENT_AT + _HEAD.size : end], end + scan
    if identifier != IDENTIFIER or version != VERSION or start > len(view) or len(blob) & 1:
        return None
    if zlib.crc32(blob, zlib.crc32(view[_SEGMENT_AT + 8 : _SEGMENT_AT + 12])) != crc:
        return None
    header = parse_header(bytes(view[end:start]))
    count = len(blob) // 2
    if header is None or count != header.columns * header.rows:
        return None
    bounds = np.empty(count + 1, np.int64)
    bounds[0] = start
    bounds[1:] = np.frombuffer(blob, _U16)
    np.add.accumulate(bounds, out=bounds)
    return Cuttable(view, header, bounds) if _ends_in_markers(view, bounds) else None


def _ends_in_markers(view: memoryview, bounds: NDArray[np.int64]) -> bool:
    """Whether every interval ends in the marker with its number.

    No two intervals overlap then: at the offset of a marker FF Dn, and at the next one, there is no FF Dn+1.
    """
    last = int(bounds[-1])
    if bounds[1] < bounds[0] + 2 or last > len(view) or view[last - 2] != 0xFF or view[last - 1] != 0xD9:
        return False
    pairs = np.ndarray((len(view) - 1,), _U16, view, 0, (1,))  # the two bytes at every offset
    # Comparing bytes costs a fraction of comparing such short arrays.
    return pairs[bounds[1:-1] - 2].tobytes() == _MARKERS[: 2 * len(bounds) - 4]


def _scan_start(jpeg: bytes | memoryview) -> int:
    """The offset of the entropy-coded data, 0 if there are none."""
    if jpeg[:2] == b"\xff\xd8":
        for kind, at, length in segments(jpeg):
            if kind == 0xDA:
                return at + 2 + length
    return 0


def _scanned(jpeg: bytes | memoryview) -> Cuttable | None:
    """Find the intervals by their markers; None unless all are there, in order, up to EOI."""
    start = _scan_start(jpeg)
    header = parse_header(bytes(jpeg[2:start])) if 0 < start <= len(jpeg) else None
    if header is None:
        return None
    body = np.frombuffer(jpeg, np.uint8)[start:]
    markers = np.flatnonzero(body[:-1] == 0xFF)
    kinds = body[markers + 1]
    markers = markers[(kinds & 0xF0) == 0xD0]  # RST0..7, SOI, EOI, SOS ...
    kinds = body[markers + 1]
    count = header.columns * header.rows
    if count > MAX_INTERVALS or len(kinds) < count or kinds[count - 1] != 0xD9:
        return None
    if not (kinds[: count - 1] == _NUMBERS[: count - 1]).all():
        return None
    bounds = np.concatenate(([start], markers[:count] + (start + 2)))
    return Cuttable(memoryview(jpeg), header, bounds)


def cut(jpeg: Data, box: Box, *, scale: int = 1) -> tuple[Data, tuple[int, int]]:
    """Cut out the smallest JPEG that covers a box and decodes to the same pixels there.

    Args:
        jpeg: the whole JPEG, any bytes-like.
        box: (x0, y0, x1, y1), half-open, in stored coordinates (before any EXIF orientation), inside the image.
        scale: the cut will be decoded at 1/scale (1, 2, 4 or 8).

    Returns:
        The small JPEG, without EXIF, ICC or index; and the (x, y) of its upper left corner in the whole image.
        `jpeg` itself and (0, 0) if it cannot be cut or the box needs all of it.
    """
    found = load(jpeg)
    return (jpeg, (0, 0)) if found is None else cut_loaded(found, box, scale)[:2]


def cut_loaded(found: Cuttable, box: Box, scale: int = 1) -> tuple[Data, tuple[int, int], Size]:
    """`cut` for a JPEG whose intervals are known; also returns the size of the small JPEG."""
    header = found.header
    whole_height, whole_width = header.size
    across, down, columns = header.across, header.down, header.columns
    c0, c1 = max(box[0] - scale, 0) // across, min(-(-(box[2] + scale) // across), columns)
    r0, r1 = max(box[1] - scale, 0) // down, min(-(-(box[3] + scale) // down), header.rows)
    while min(c1 * across, whole_width) - c0 * across <= 4 * scale and (c0 or c1 < columns):
        c0, c1 = (c0 - 1, c1) if c0 else (c0, c1 + 1)
    if c1 - c0 == columns and r1 - r0 == header.rows:
        return found.jpeg, (0, 0), header.size
    x, y = c0 * across, r0 * down
    height, width = min(r1 * down, whole_height) - y, min(c1 * across, whole_width) - x
    spans = found.bounds[r0 * columns : r1 * columns + 1]
    firsts, lasts = spans[c0:-1:columns], spans[c1::columns]
    jpeg, head, at = found.jpeg, header.head, header.size_at
    rows = [jpeg[a:b] for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True)]
    out = bytearray().join([head[:at], _SIZE.pack(height, width), head[at + 4 :], *rows])
    # Interval k of the cut ends in marker k: move each end by as much as its row was moved.
    moved = (lasts - firsts).cumsum()
    moved += len(head) - 1 - lasts
    marks = spans[1:].reshape(-1, columns)[:, c0:c1] + moved[:, None]
    data = np.frombuffer(out, np.uint8)
    data[marks.ravel()] = _NUMBERS[: marks.size]
    data[-1] = 0xD9
    return out, (x, y), Size(height, width)
