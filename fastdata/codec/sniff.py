"""Inspect encoded images before anything is decoded: their kind (`sniff`) and their header (`probe`).

Pure Python, which allocates no memory for pixels and raises only exceptions of `fastdata.errors`, whatever the bytes.
"""

from __future__ import annotations

from struct import error as struct_error

from fastdata.codec.headers import boxes, jpeg, png, simple, tiff, webp
from fastdata.codec.info import Data, ImageInfo
from fastdata.codec.kinds import IMAGE_SUFFIXES, READABLE, SNIFF_BYTES, UNSUPPORTED, sniff
from fastdata.errors import CutError, DecodeError, UnsupportedError

__all__ = ["IMAGE_SUFFIXES", "READABLE", "SNIFF_BYTES", "UNSUPPORTED", "ImageInfo", "probe", "sniff"]

_READERS = {
    "jpg": jpeg.read,
    "png": png.read,
    "webp": webp.read,
    "bmp": simple.read_bmp,
    "gif": simple.read_gif,
    "tif": tiff.read,
    "avif": boxes.read_avif,
    "jp2": boxes.read_jp2,
    "ppm": simple.read_netpbm,
    "pgm": simple.read_netpbm,
    "pbm": simple.read_netpbm,
    "ico": simple.read_ico,
    "npy": simple.read_npy,
}


def probe(data: Data) -> ImageInfo:
    """Read the header of a file.

    Args:
        data: the whole file. A part of it is reported as cut.

    Returns:
        Size, orientation, kind of samples, and whether the data end early.

    Raises:
        UnsupportedError: a known kind that is not read; the message says what to do.
        CutError: the data end before the size is known.
        DecodeError: the data are not an image, or the header is invalid.
    """
    # JPEG first and without a table: this is the path of nearly every training image.
    kind = "jpg" if data[:3] == b"\xff\xd8\xff" and data[3:4] != b"\xf7" else sniff(data)
    reader = _READERS.get(kind or "")
    if reader is None:
        raise _refusal(data, kind)
    try:
        return reader(data)
    except (struct_error, IndexError, OverflowError) as error:  # an offset beyond the data, or beyond any data
        raise CutError(f"the data end within the {str(kind).upper()} header") from error
    except (DecodeError, MemoryError):
        raise
    except Exception as error:
        message = f"the {str(kind).upper()} header cannot be read: {type(error).__name__}: {error!s:.200}"
        raise DecodeError(message) from error


def _refusal(data: Data, kind: str | None) -> DecodeError:
    if kind is not None:
        return UnsupportedError(f"{UNSUPPORTED[kind]}")
    if not len(data):
        return DecodeError("the file is empty")
    return DecodeError(f"not an image of a known kind: the data begin with {bytes(data[:12])!r}")
