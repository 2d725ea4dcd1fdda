"""Bytes to RGB: the one place where pictures are decoded, for conversion, readers and training alike.

Flows in: a file's bytes and a few rules. Flows out: the upright picture of the first frame as H x W x 3 uint8 RGB,
contiguous, writable and owned by the caller. One rule each:

- The content decides which decoder is used, never a name. OpenCV decodes JPEG, and PNG, WebP, AVIF, BMP and Netpbm in
  the forms that it gets right; Pillow decodes the rest (`_opencv_reads` is the rule), and whatever OpenCV refuses.
- The size is held against `max_pixels` before anything is decoded.
- The orientation is read by `probe`, from EXIF or from AVIF's properties, and applied here, once.
- Gray and palette become RGB, CMYK and YCCK by the simple formula that Pillow has; 16 bits keep their upper eight.
- Colour profiles are passed over, but for a way to sRGB (`fastdata.codec.icc`) that is handed in.
- Transparency is laid over white or black, or dropped.
- Data that end early are refused, or filled up where `keep_damaged` is set. A JPEG ends early where coded data are
  missing, with an end marker or without; one that lacks nothing but its end marker is whole.

Nothing is printed by this module, and every failure is a `DecodeError` with a reason in one line. What libjpeg, libpng
and libtiff would write to descriptor 2 about damaged data is part of that reason, or a note.
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
    """What `decode` is told about every picture of a data set."""

    alpha: Alpha = "white"
    max_pixels: int = MAX_PIXELS
    keep_damaged: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], max_pixels: int = MAX_PIXELS) -> Rules:
        """The rules that a data set was converted by, from its manifest's options; these may hold anything else too.

        Args:
            options: the manifest's, which nobody need trust.
            max_pixels: the limit of whoever reads; the data set may lower it, never raise it.
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
    """Decodes a picture to upright RGB.

    Args:
        data: the whole file; read-only buffers are fine, and it is never changed.
        alpha: what becomes of transparency: laid over `white` or `black`, or `drop`.
        max_pixels: larger pictures are refused before memory is taken.
        keep_damaged: pictures whose data end early are filled up instead of refused.
        reduce: 2, 4 or 8 decode a JPEG at that fraction of its size (sides rounded up); other kinds ignore it.
        info: what `probe(data)` gave, where it is known already.
        notes: takes a line for each repair that was made, and for what a decoder said of the data.
        colors: the way to sRGB; None leaves the numbers as they are.

    Returns:
        H x W x 3 uint8, contiguous, writable, not shared with anything.

    Raises:
        TooLargeError: more than `max_pixels`.
        CutError: the data end early.
        UnsupportedError: a known kind that is not read.
        DecodeError: anything else that gives no picture.
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
        # Pillow has turned TIFFs already.
        return pixels if info.orientation == 1 or info.format == "tif" else upright(pixels, info.orientation)
    except FastdataError:
        raise
    except Exception as error:
        if resource_error(error) is not None:
            raise
        words = f"the {info.format.upper()} cannot be decoded: {type(error).__name__}: {error!s:.200}"
        raise DecodeError(words) from error


def _in_srgb(
    data: Data, info: ImageInfo, pixels: NDArray[np.uint8], colors: Conversion, keep: bool
) -> NDArray[np.uint8]:
    """Pixels by their profile; of CMYK from the inks themselves, which only Pillow gives."""
    if colors.mode != "CMYK":
        return colors.pixels(pixels)
    whole = jpeg.ended(data) if info.format == "jpg" and info.cut else data
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
    """Whether OpenCV gets this form of this kind right.

    Not: animated WebP and AVIF (it may compose another first frame); AVIF deeper than 8 bits; BMP but for plain 24
    bits; Netpbm with odd numbers of levels or as text; and TIFF, GIF, JPEG 2000 and ICO at all.
    """
    if max(info.width, info.height) > _OPENCV_SIDE or info.pixels > _OPENCV_PIXELS:
        return False
    if info.format == "bmp":
        return info.mode == "rgb" and info.bits == 24
    if info.format in _NETPBM:
        return info.mode != "scaled"
    return info.format == "png" or (info.format in ("webp", "avif") and info.bits == 8 and not info.animated)


def _jpeg(data: Data, info: ImageInfo, reduce: int, keep: bool, notes: list[str]) -> NDArray[np.uint8] | None:
    """A JPEG's pixels; None for those that only Pillow reads, or nobody."""
    whole = jpeg.ended(data) if info.cut else data
    pixels, said = jpeg.examined(whole, reduce, Size(info.height, info.width))
    if pixels is None:
        return None
    if jpeg.ends_early(said):
        if not keep:
            raise CutError(f"{info.cut or 'the JPEG has fewer coded data than pixels'} ({said})")
        notes.append(f"{info.cut or said}; the rest is filled up")
    elif said:
        notes.append(f"the decoder says: {said}")
    elif info.cut:
        notes.append("the JPEG lacks its end marker, and nothing else")
    return pixels


def _other(data: Data, info: ImageInfo, background: int | None, keep: bool, notes: list[str]) -> NDArray[np.uint8]:
    """Everything but a JPEG that OpenCV reads."""
    if info.cut and not keep:
        raise CutError(info.cut)
    if info.format == "npy":
        return _npy(data, info, background)
    clean, harm = png.pixels_only(data) if info.format == "png" else (data, "")
    if harm and not keep:
        raise DecodeError(harm)
    said = ""
    if not info.cut and not harm and _opencv_reads(info):
        found, said = imdecode(clean, cv2.IMREAD_UNCHANGED if info.alpha else COLOR)
        if found is not None:
            if said:
                notes.append(f"the decoder says: {said}")
            level = png.clear_level(data, info.bits) if info.alpha and found.ndim == 2 else -1
            return _blended(found, background, level) if info.alpha else found
    pixels, said = fallback.decode(data, info, background, lenient=keep, said=said)
    if info.cut or harm:
        notes.append(f"{info.cut or harm}; the rest is filled up")
    elif info.format == "jpg" or _opencv_reads(info):
        notes.append(f"OpenCV could not decode it, Pillow did; it may be damaged{f' ({said})' if said else ''}")
    elif said:
        notes.append(f"the decoder says: {said}")
    return pixels


def _blended(pixels: NDArray[np.generic], background: int | None, level: int) -> NDArray[np.uint8]:
    """OpenCV's samples as they are in the file: 8 or 16 bits, gray, BGR or BGRA.

    Of gray PNGs it drops the transparency, which is one level.
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
    there = np.frombuffer(data, np.uint8, offset=offset)[: flat.size]  # fewer than wanted only where damage is kept
    flat[: there.size] = there
    pixels = flat.reshape(shape, order="F" if fortran else "C")
    if info.mode == "gray":
        return three(np.ascontiguousarray(pixels.reshape(shape[:2])))
    if info.alpha:
        return by_bands((shape[0], shape[1]), lambda rows: blend(pixels[rows], background))
    return np.ascontiguousarray(pixels)
