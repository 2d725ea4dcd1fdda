"""Bytes to RGB: every image is decoded here, for conversion, readers and training alike.

`decode` takes the bytes of a file and returns its first frame, upright, as H x W x 3 uint8 RGB: contiguous, writable
and owned by the caller. The rules:

- The content decides which decoder is used, never the file name. OpenCV decodes JPEG, and PNG, WebP, AVIF, BMP and
  Netpbm in the forms that it gets right (`_opencv_reads`); Pillow decodes the rest, and whatever OpenCV refuses.
- The size is compared with `max_pixels` before anything is decoded.
- The orientation is read by `probe`, from EXIF or from AVIF's properties, and applied here, once.
- Gray and palette become RGB, CMYK and YCCK by the simple formula that Pillow has; 16 bits keep their upper eight.
- Colour profiles are ignored, unless a conversion to sRGB (`fastdata.codec.icc`) is passed.
- Transparency is laid over white or black, or dropped.
- Data that end early are refused, or the missing pixels are filled if `keep_damaged` is set. A JPEG ends early if coded
  data are missing, with or without an end marker; one that lacks only its end marker is whole.

This module prints nothing, and every failure is a `DecodeError` with a reason on one line. What libjpeg, libpng and
libtiff would write to descriptor 2 about damaged data becomes part of that reason, or a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.checks import choice
from fastdata.codec import fallback, jpeg
from fastdata.codec.blend import BACKGROUNDS, Alpha, blend, by_bands, eight_bits, three
from fastdata.codec.headers import png
from fastdata.codec.headers.simple import npy_layout
from fastdata.codec.info import MAX_PIXELS
from fastdata.codec.opencv import COLOR, imdecode
from fastdata.codec.sniff import probe
from fastdata.codec.turn import upright
from fastdata.errors import CutError, DecodeError, FastdataError, TooLargeError, resource_error
from fastdata.size import Size

if TYPE_CHECKING:
    from fastdata.codec.icc import Conversion
    from fastdata.codec.info import Data, ImageInfo

__all__ = ["MAX_PIXELS", "Alpha", "Rules", "decode"]

# OpenCV's own limits, fixed when it is imported: beyond them it raises.
_OPENCV_SIDE, _OPENCV_PIXELS = 1 << 20, 1 << 30
_NETPBM = frozenset({"ppm", "pgm", "pbm"})


@dataclass(frozen=True, slots=True)
class Rules:
    """The arguments with which `decode` is called for every image of a data set."""

    alpha: Alpha = "white"
    max_pixels: int = MAX_PIXELS
    keep_damaged: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], max_pixels: int = MAX_PIXELS) -> Rules:
        """The rules that a data set was converted by, from the options in its manifest.

        Args:
            options: of the manifest. They are not trusted, and may hold anything else too.
            max_pixels: the reader's limit; the data set may lower it, never raise it.
        """
        alpha, most = options.get("alpha"), options.get("max_pixels")
        return cls(
            cast("Alpha", alpha) if alpha in get_args(Alpha) else "white",
            min(most, max_pixels) if type(most) is int and most > 0 else max_pixels,
            options.get("keep_damaged") is True,
        )


DEFAULT_RULES = Rules()


def decode(
    data: Data,
    *,
    alpha: Alpha = "white",
    max_pixels: int = MAX_PIXELS,
    keep_damaged: bool = False,
    reduce: int = 1,
    info: ImageInfo | None = None,
    notes: list[str] | None = None,
    colors: Conversion | None = None,
) -> NDArray[np.uint8]:
    """Decode an image to upright RGB.

    Args:
        data: the whole file, any bytes-like; never changed.
        alpha: the background for transparency, `white` or `black`; or `drop`, which ignores it.
        max_pixels: larger images are refused before memory is allocated.
        keep_damaged: fill the missing pixels of an image whose data end early, instead of refusing it.
        reduce: 2, 4 or 8 decode a JPEG at 1/2, 1/4 or 1/8 of its size (sides rounded up); other kinds ignore it.
        info: the result of `probe(data)`, if it is known.
        notes: a line is appended for each repair, and for what a decoder reported of the data.
        colors: the conversion to sRGB; None leaves the numbers as they are.

    Returns:
        H x W x 3 uint8, contiguous, writable, not shared with anything.

    Raises:
        TooLargeError: more than `max_pixels`.
        CutError: the data end early.
        UnsupportedError: a known kind that is not read.
        DecodeError: the data cannot be decoded for any other reason.
    """
    if alpha not in BACKGROUNDS or reduce not in jpeg.FLAGS:
        choice("alpha", alpha, tuple(BACKGROUNDS))
        choice("reduce", reduce, tuple(jpeg.FLAGS))
    if type(data) is not bytes:
        data = _plain(data)
    if info is None:
        info = probe(data)
    if info.pixels > max_pixels:
        raise _too_large(info, max_pixels)
    notes = [] if notes is None else notes
    try:
        pixels = _jpeg(data, info, reduce, keep_damaged, notes) if info.format == "jpg" else None
        if pixels is None:
            pixels = _other(data, info, BACKGROUNDS[alpha], keep_damaged, notes)
        if colors is not None:
            pixels = _in_srgb(data, info, pixels, colors, keep_damaged)
        # Pillow has turned TIFFs upright already.
        return pixels if info.orientation == 1 or info.format == "tif" else upright(pixels, info.orientation)
    except FastdataError:
        raise
    except Exception as error:
        if resource_error(error) is not None:
            raise
        message = f"the {info.format.upper()} cannot be decoded: {type(error).__name__}: {error!s:.200}"
        raise DecodeError(message) from error


def _in_srgb(
    data: Data, info: ImageInfo, pixels: NDArray[np.uint8], colors: Conversion, keep: bool
) -> NDArray[np.uint8]:
    """Convert pixels to sRGB. CMYK is decoded again, since only Pillow returns the inks themselves."""
    if colors.mode != "CMYK":
        return colors.pixels(pixels)
    whole = jpeg.with_end_marker(data) if info.format == "jpg" and info.cut else data
    return fallback.decode(whole, info, None, lenient=keep, inks=colors)[0]


def _plain(data: Data) -> Data:
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 and view.contiguous else view.cast("B")


def _too_large(info: ImageInfo, max_pixels: int) -> TooLargeError:
    size = f"{info.width} x {info.height} = {info.width * info.height:,} pixels"
    if info.claimed > info.width * info.height:
        size += f", with a frame or tile of {info.claimed:,} pixels inside"
    return TooLargeError(f"{size}, more than the {max_pixels:,} allowed; raise --max-pixels (max_pixels) to read it")


def _opencv_reads(info: ImageInfo) -> bool:
    """Whether OpenCV decodes this form of this kind correctly.

    It does not for animated WebP and AVIF (it may compose another first frame), AVIF deeper than 8 bits, BMP of other
    than 24 bits, Netpbm as text or with another maximum than 255 or 65535, TIFF, GIF, JPEG 2000 and ICO.
    """
    if max(info.width, info.height) > _OPENCV_SIDE or info.pixels > _OPENCV_PIXELS:
        return False
    if info.format == "bmp":
        return info.mode == "rgb" and info.bits == 24
    if info.format in _NETPBM:
        return info.mode != "scaled"
    return info.format == "png" or (info.format in ("webp", "avif") and info.bits == 8 and not info.animated)


def _jpeg(data: Data, info: ImageInfo, reduce: int, keep: bool, notes: list[str]) -> NDArray[np.uint8] | None:
    """Decode a JPEG; None if OpenCV and simplejpeg cannot."""
    whole = jpeg.with_end_marker(data) if info.cut else data
    pixels, log = jpeg.decode_logged(whole, reduce, Size(info.height, info.width))
    if pixels is None:
        return None
    if jpeg.ends_early(log):
        if not keep:
            raise CutError(f"{info.cut or 'the JPEG has fewer coded data than pixels'} ({log})")
        notes.append(f"{info.cut or log}; the rest is filled up")
    elif log:
        notes.append(f"the decoder says: {log}")
    elif info.cut:
        notes.append("the JPEG lacks its end marker, and nothing else")
    return pixels


def _other(data: Data, info: ImageInfo, background: int | None, keep: bool, notes: list[str]) -> NDArray[np.uint8]:
    """Decode everything but a JPEG that OpenCV reads."""
    if info.cut and not keep:
        raise CutError(info.cut)
    if info.format == "npy":
        return _npy(data, info, background)
    clean, damage = png.pixels_only(data) if info.format == "png" else (data, "")
    if damage and not keep:
        raise DecodeError(damage)
    log = ""
    if not info.cut and not damage and _opencv_reads(info):
        found, log = imdecode(clean, cv2.IMREAD_UNCHANGED if info.alpha else COLOR)
        if found is not None:
            if log:
                notes.append(f"the decoder says: {log}")
            level = png.clear_level(data, info.bits) if info.alpha and found.ndim == 2 else -1
            return _blended(found, background, level) if info.alpha else found
    pixels, log = fallback.decode(data, info, background, lenient=keep, log=log)
    if info.cut or damage:
        notes.append(f"{info.cut or damage}; the rest is filled up")
    elif info.format == "jpg" or _opencv_reads(info):
        notes.append(f"OpenCV could not decode it, Pillow did; it may be damaged{f' ({log})' if log else ''}")
    elif log:
        notes.append(f"the decoder says: {log}")
    return pixels


def _blended(pixels: NDArray[np.generic], background: int | None, level: int) -> NDArray[np.uint8]:
    """Lay OpenCV's samples (8 or 16 bits; gray, BGR or BGRA) over a background.

    OpenCV drops the transparency of gray PNGs, which is one `level`.
    """
    return by_bands((pixels.shape[0], pixels.shape[1]), lambda rows: _blended_rows(pixels[rows], background, level))


def _blended_rows(pixels: NDArray[np.generic], background: int | None, level: int) -> NDArray[np.uint8]:
    small = eight_bits(pixels)
    if small.ndim == 2:
        solid = np.where(pixels == level, 0, 255).astype(np.uint8)
        return blend(np.dstack([three(small), solid]), background)
    order = cv2.COLOR_BGRA2RGBA if small.shape[2] == 4 else cv2.COLOR_BGR2RGB
    rgb = np.asarray(cv2.cvtColor(small, order), np.uint8)
    return blend(rgb, background) if rgb.shape[2] == 4 else rgb


def _npy(data: Data, info: ImageInfo, background: int | None) -> NDArray[np.uint8]:
    shape, fortran, offset = npy_layout(data)
    flat = np.zeros(math.prod(shape), np.uint8)
    available = np.frombuffer(data, np.uint8, offset=offset)[: flat.size]  # fewer than needed only if damage is kept
    flat[: available.size] = available
    pixels = flat.reshape(shape, order="F" if fortran else "C")
    if info.mode == "gray":
        return three(np.ascontiguousarray(pixels.reshape(shape[:2])))
    if info.alpha:
        return by_bands((shape[0], shape[1]), lambda rows: blend(pixels[rows], background))
    return np.ascontiguousarray(pixels)
