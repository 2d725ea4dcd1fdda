"""AVIF and JPEG 2000: boxes within boxes, down to the size, the orientation and the location of the pixels."""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

from fastdata.codec.headers.av1 import stated_size
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import CutError, DecodeError, UnsupportedError

BoxSpan = tuple[bytes, int, int]
"""Name, and where the content begins and ends; the end lies beyond the data if they are cut."""

# AVIF: (quarter turns anticlockwise, mirror axis or None) -> EXIF orientation. The turn comes before the mirror.
_TURNS = {
    (0, None): 1, (1, None): 8, (2, None): 3, (3, None): 6,
    (0, 1): 2, (1, 1): 7, (2, 1): 4, (3, 1): 5,
    (0, 0): 4, (1, 0): 5, (2, 0): 2, (3, 0): 7,
}  # fmt: skip
_ALPHA = (b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", b"urn:mpeg:hevc:2015:auxid:1")


def boxes(data: Data, start: int, end: int) -> Iterator[BoxSpan]:
    """The boxes of one level in data[start:end]."""
    at = start
    while at + 8 <= min(end, len(data)):
        size, name = unpack_from(">I4s", data, at)
        body = at + 8
        if size == 1 and at + 16 <= len(data):
            size, body = unpack_from(">Q", data, at + 8)[0], at + 16
        stop = at + size if size else end
        if stop < body:
            return
        yield name, body, stop
        at = stop


def read_avif(data: Data) -> ImageInfo:
    """Read an AVIF: the properties of its primary item."""
    top, size = list(boxes(data, 0, len(data))), len(data)
    cut = "the AVIF's data end before its last box" if not top or top[-1][2] > size else ""
    meta = next((box for box in top if box[0] == b"meta"), None)
    animated = any(name == b"moov" for name, _, _ in top)
    if meta is None or meta[2] > size:
        raise CutError("the data end before the AVIF's description")
    inner = {name: (start, end) for name, start, end in boxes(data, meta[1] + 4, meta[2])}
    if b"pitm" not in inner or b"iprp" not in inner:
        raise DecodeError("the AVIF describes no image")
    facts = _properties(data, inner)
    spatial = facts.get(b"ispe")
    if spatial is None:
        raise DecodeError("the AVIF does not state its size")
    width, height = unpack_from(">II", data, spatial[0] + 4)
    if not width or not height:
        raise DecodeError(f"the AVIF claims {width} x {height} pixels")
    angle = data[facts[b"irot"][0]] & 3 if b"irot" in facts else 0
    axis = data[facts[b"imir"][0]] & 1 if b"imir" in facts else None
    bits, gray = _depth(data, facts)
    beyond, claimed = _items(data, inner)
    turn, mode, alpha = _TURNS[angle, axis], "gray" if gray else "rgb", b"auxC" in facts
    return ImageInfo("avif", width, height, turn, bits, mode, alpha, animated, False, cut or beyond, claimed)


def _depth(data: Data, facts: dict[bytes, tuple[int, int]]) -> tuple[int, bool]:
    if b"av1C" not in facts:
        return 8, False
    flags = data[facts[b"av1C"][0] + 2]
    return 12 if flags & 0x20 else 10 if flags & 0x40 else 8, bool(flags & 0x10)


def _properties(data: Data, inner: dict[bytes, tuple[int, int]]) -> dict[bytes, tuple[int, int]]:
    """Name -> span of the primary item's properties; `auxC` stands for transparency anywhere in the file."""
    start, _ = inner[b"pitm"]
    (primary,) = unpack_from(">I" if data[start] else ">H", data, start + 4)
    parts = {name: (begin, end) for name, begin, end in boxes(data, *inner[b"iprp"])}
    every = list(boxes(data, *parts.get(b"ipco", (0, 0))))
    chosen: dict[bytes, tuple[int, int]] = {}
    for index in _associated(data, parts.get(b"ipma"), primary):
        if 0 < index <= len(every):
            name, begin, end = every[index - 1]
            chosen.setdefault(name, (begin, end))
    chosen.pop(b"auxC", None)
    for name, begin, end in every:
        if name == b"auxC" and any(bytes(data[begin + 4 : end]).startswith(kind) for kind in _ALPHA):
            chosen[b"auxC"] = (begin, end)
    return chosen


def _associated(data: Data, span: tuple[int, int] | None, item: int) -> Iterator[int]:
    """Numbers, from 1, of the properties that belong to an item."""
    if span is None:
        return
    at, end = span
    version, wide = data[at], data[at + 3] & 1
    (count,) = unpack_from(">I", data, at + 4)
    at += 8
    for _ in range(count):
        if at >= end:
            return
        (number,) = unpack_from(">I" if version else ">H", data, at)
        at += 4 if version else 2
        many, at = data[at], at + 1
        for _ in range(many):
            value = unpack_from(">H", data, at)[0] & 0x7FFF if wide else data[at] & 0x7F
            at += 2 if wide else 1
            if number == item:
                yield value


def _items(data: Data, inner: dict[bytes, tuple[int, int]]) -> tuple[str, int]:
    """How the bytes of an item end early ("" if they do not), and the most pixels that an AV1 item states."""
    coded, cut, most = _coded_items(data, inner), "", 0
    for item, start, end in _extents(data, inner.get(b"iloc")):
        cut = "the AVIF's data end before its image does" if end > len(data) else cut
        if item in coded:
            width, height = stated_size(data, start, end)
            most = max(most, width * height)
    return cut, most


def _coded_items(data: Data, inner: dict[bytes, tuple[int, int]]) -> frozenset[int]:
    """Numbers of the items that are AV1 streams (`iinf`)."""
    start, end = inner.get(b"iinf", (0, 0))
    found = set()
    for name, at, _ in boxes(data, start + (8 if end and data[start] else 6), end):
        wide = data[at] == 3
        number, kind = unpack_from(">I2x4s" if wide else ">H2x4s", data, at + 4)
        if name == b"infe" and kind == b"av01":
            found.add(number)
    return frozenset(found)


def _extents(data: Data, span: tuple[int, int] | None) -> Iterator[tuple[int, int, int]]:
    """Item, begin and end of every extent that lies in the file itself (`iloc`)."""
    if span is None:
        return
    at = span[0]
    version, sizes = data[at], unpack_from(">H", data, at + 4)[0]
    offset_width, length_width, base_width = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_width, wide = sizes & 15 if version else 0, version == 2
    if not offset_width and not length_width:  # extents that take no bytes could be repeated forever
        return
    count, at = unpack_from(">I" if wide else ">H", data, at + 6)[0], at + (10 if wide else 8)
    for _ in range(count):  # ends with an IndexError or struct.error if the count is wrong
        item, at = unpack_from(">I" if wide else ">H", data, at)[0], at + (4 if wide else 2)
        method = unpack_from(">H", data, at)[0] & 15 if version else 0
        base, at = _integer(data, at + (4 if version else 2), base_width)
        extents, at = unpack_from(">H", data, at)[0], at + 2
        for _ in range(extents):
            start, at = _integer(data, at + index_width, offset_width)
            length, at = _integer(data, at, length_width)
            if at > len(data):
                return
            if method == 0:
                yield item, base + start, base + start + length if length else len(data)


def _integer(data: Data, at: int, width: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + width], "big"), at + width


def read_jp2(data: Data) -> ImageInfo:
    """Read a JPEG 2000 image: its size is that in the code stream, not in the box around it."""
    start, end, alpha, stated = 0, len(data), False, ""
    if data[:2] != b"\xff\x4f":
        start = -1
        for name, begin, stop in boxes(data, 0, len(data)):
            if name == b"jp2h":
                alpha = any(inner == b"cdef" for inner, _, _ in boxes(data, begin, stop))
            if name == b"jp2c":
                start, end = begin, stop
                break
        if start < 0:
            raise CutError("the data end before the JPEG 2000 code stream")
    if end > len(data):
        stated, end = "the JPEG 2000 data end before their stated length", len(data)
    if start + 42 > end or data[start : start + 4] != b"\xff\x4f\xff\x51":
        raise CutError("the data end within the JPEG 2000 header")
    right, bottom, left, top, _, _, _, _, channels = unpack_from(">8IH", data, start + 8)
    width, height = right - left, bottom - top
    if width <= 0 or height <= 0:
        raise DecodeError(f"the JPEG 2000 image claims {width} x {height} pixels")
    if channels > 4:
        raise UnsupportedError(f"a JPEG 2000 image of {channels} channels is not read; choose three of them first")
    bits = (data[start + 42] & 0x7F) + 1 if start + 43 <= end else 8
    # Some writers pad the end, so the end marker is looked for in the last bytes, not only at the last two.
    ended = stated or ("" if b"\xff\xd9" in bytes(data[max(start, end - 64) : end]) else "the JPEG 2000 data end early")
    mode = "gray" if channels < 3 else "rgb"
    return ImageInfo("jp2", width, height, 1, bits, mode, alpha or channels in (2, 4), lossless=False, cut=ended)
