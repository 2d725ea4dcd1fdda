"""TIFF's first directory: sizes, sample layout, orientation, and whether strips or tiles lie beyond the data."""

from __future__ import annotations

from struct import calcsize, unpack_from
from struct import error as struct_error

from fastdata.codec.exif import xmp_orientation
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import CutError, DecodeError, UnsupportedError

_SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 254, 256, 257, 258, 259, 262
_STRIPS, _TURN, _SAMPLES, _ROWS, _STRIP_BYTES, _PLANES = 273, 274, 277, 278, 279, 284
_TILE_WIDTH, _TILE_HEIGHT, _XMP = 322, 323, 700
_TILES, _TILE_BYTES, _SUBIFDS, _EXTRA, _SAMPLE_FORMAT, _DNG = 324, 325, 330, 338, 339, 50706
_WANTED = frozenset({
    _SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _STRIPS, _TURN, _SAMPLES, _ROWS,
    _STRIP_BYTES, _PLANES, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES, _SUBIFDS, _EXTRA, _SAMPLE_FORMAT, _DNG,
})  # fmt: skip
_TYPES = {1: "B", 3: "H", 4: "I", 8: "h", 9: "i", 13: "I", 16: "Q", 18: "Q"}  # no wanted tag has another type
_BYTES = (1, 7)
_MODES = {0: "gray-inverted", 1: "gray", 2: "rgb", 3: "palette", 5: "cmyk", 6: "ycc", 8: "lab"}
_JPEG = frozenset({6, 7})

Tags = dict[int, tuple[int, ...]]


def read(data: Data) -> ImageInfo:
    """Read the first page's directory, and check that every strip or tile lies in the data."""
    try:
        tags, more = _directory(data)
    except (struct_error, OverflowError) as error:
        raise CutError("the data end before the TIFF's directory") from error
    width, height, bits = _one(tags, _WIDTH), _one(tags, _HEIGHT), max(tags.get(_BITS, (1,)))
    if not 0 < width < 2**31 or not 0 < height < 2**31:
        raise DecodeError(f"the TIFF claims {width} x {height} pixels")
    _refuse(tags, bits)
    turn = _one(tags, _TURN) if _TURN in tags else xmp_orientation(data[slice(*tags.get(_XMP, (0, 0)))])
    turn = turn if 1 <= turn <= 8 else 1
    mode = _MODES.get(_one(tags, _PHOTOMETRIC, 1), "other")
    tile = _one(tags, _TILE_WIDTH) * _one(tags, _TILE_HEIGHT)
    alpha = any(kind in (1, 2) for kind in tags.get(_EXTRA, ()))
    lossless = _one(tags, _COMPRESSION, 1) not in _JPEG
    cut = _cut(data, tags, width, height)
    return ImageInfo("tif", width, height, turn, bits, mode, alpha, more, lossless, cut, tile)


def _one(tags: Tags, tag: int, default: int = 0) -> int:
    return tags.get(tag, (default,))[0]


def _refuse(tags: Tags, bits: int) -> None:
    if _DNG in tags or (_SUBIFDS in tags and _one(tags, _SUBFILE) & 1):
        raise UnsupportedError("a camera raw file, which must be developed; convert it to PNG or JPEG first")
    kinds = set(tags.get(_SAMPLE_FORMAT, (1,)))
    if bits > 16 or kinds - {1, 4}:
        what = "floats" if 3 in kinds else "signed integers" if 2 in kinds else "integers"
        raise UnsupportedError(f"a TIFF of {bits}-bit {what} has no fixed white; scale it to 8 or 16 bits first")
    if bits != 8 and _one(tags, _COMPRESSION, 1) in _JPEG:  # Pillow and OpenCV give noise, or nothing
        raise UnsupportedError(f"a TIFF of JPEG data of {bits} bits a sample is not read; save it uncompressed first")
    samples = _one(tags, _SAMPLES, 1)
    if samples > 6:
        raise UnsupportedError(f"a TIFF of {samples} channels is not a colour image; choose three of them first")


def _directory(data: Data) -> tuple[Tags, bool]:
    """The wanted tags of the first directory, and whether another follows."""
    order = "<" if data[:2] == b"II" else ">"
    big = unpack_from(order + "H", data, 2)[0] == 43
    offset, word, entry = (order + "Q", order + "Q", 20) if big else (order + "I", order + "H", 12)
    (at,) = unpack_from(offset, data, 8 if big else 4)
    (count,) = unpack_from(word, data, at)
    first = at + calcsize(word)
    tags: Tags = {}
    if count > 65535:
        raise DecodeError(f"the TIFF's directory claims {count} entries")
    for where in range(first, first + count * entry, entry):
        tag, kind, number = unpack_from(order + ("HHQ" if big else "HHI"), data, where)
        if tag in _WANTED and kind in _TYPES and number:
            tags[tag] = _values(data, order, _TYPES[kind], number, (where + entry - calcsize(offset), offset))
        elif tag == _XMP and kind in _BYTES:  # where it begins and ends
            start = unpack_from(offset, data, where + entry - calcsize(offset))[0]
            tags[tag] = start, start + number
    end = first + count * entry
    more = end + calcsize(offset) <= len(data) and unpack_from(offset, data, end)[0] != 0
    return tags, more


def _values(data: Data, order: str, code: str, number: int, field: tuple[int, str]) -> tuple[int, ...]:
    where, offset = field
    length = number * calcsize(order + code)
    start = where if length <= calcsize(offset) else unpack_from(offset, data, where)[0]
    if start + length > len(data):
        raise CutError("the TIFF's data end before its tables do")
    return unpack_from(f"{order}{number}{code}", data, start)


def _cut(data: Data, tags: Tags, width: int, height: int) -> str:
    starts, lengths = tags.get(_TILES) or tags.get(_STRIPS, ()), tags.get(_TILE_BYTES) or tags.get(_STRIP_BYTES, ())
    if not starts:
        raise DecodeError("the TIFF has neither strips nor tiles")
    if len(starts) < (wanted := _parts(tags, width, height)):
        return f"the TIFF has {len(starts)} of the {wanted} strips or tiles of {width} x {height} pixels"
    ends = (start + length for start, length in zip(starts, lengths, strict=False)) if lengths else starts
    return "the TIFF's data end before its last strip or tile" if max(ends) > len(data) else ""


def _parts(tags: Tags, width: int, height: int) -> int:
    """How many strips or tiles there must be."""
    wide, high = (_one(tags, _TILE_WIDTH), _one(tags, _TILE_HEIGHT)) if _TILES in tags else (width, 0)
    wide, high = wide or width, high or _one(tags, _ROWS) or height
    planes = _one(tags, _SAMPLES, 1) if _one(tags, _PLANES, 1) == 2 else 1
    return -(-width // wide) * -(-height // high) * planes
