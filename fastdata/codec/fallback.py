"""Pillow, for the kinds of image that OpenCV cannot decode or decodes wrong, and for damaged files.

`decode` returns H x W x 3 RGB as stored, but for TIFFs, which Pillow turns upright itself.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastdata.codec import quiet
from fastdata.codec.blend import blend, by_bands, eight_bits, three
from fastdata.codec.decoder_log import logged
from fastdata.codec.info import Data, ImageInfo
from fastdata.errors import DecodeError, UnsupportedError, resource_error

if TYPE_CHECKING:
    from PIL import Image

    from fastdata.codec.icc import Conversion

# Only the reader of the recognised kind is tried, so that no other one ever sees the data.
_READERS = {
    "jpg": ("JPEG", "MPO"), "png": ("PNG",), "webp": ("WEBP",), "bmp": ("BMP",), "gif": ("GIF",), "tif": ("TIFF",),
    "avif": ("AVIF",), "jp2": ("JPEG2000",), "ppm": ("PPM",), "pgm": ("PPM",), "pbm": ("PPM",), "ico": ("ICO",),
}  # fmt: skip
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "RGBa", "La"})
_ORIENTATION = 0x0112


def decode(
    data: Data,
    info: ImageInfo,
    background: int | None,
    *,
    lenient: bool = False,
    log: str = "",
    inks: Conversion | None = None,
) -> tuple[NDArray[np.uint8], str]:
    """Decode the first frame; also return `log`, with what Pillow's libraries wrote about the file added.

    Args:
        data: the whole file.
        info: its header.
        background: the level that transparency is laid over; None drops transparency.
        lenient: fill the missing pixels of data that end early.
        log: what other decoders wrote about the file.
        inks: the conversion of CMYK to sRGB, instead of the simple formula.

    Raises:
        DecodeError: Pillow could not; the message is its reason on one line.
    """
    found, more = logged(lambda: _decoded(data, info, background, lenient, inks))
    log = "; ".join(filter(None, (log, more)))
    if isinstance(found, DecodeError):
        raise type(found)(f"{found} ({log})" if log else str(found)) from found.__cause__
    return found, log


def _decoded(
    data: Data, info: ImageInfo, background: int | None, lenient: bool, inks: Conversion | None
) -> NDArray[np.uint8] | DecodeError:
    """The pixels, or the error, which `decode` raises with the log."""
    from PIL import Image, UnidentifiedImageError

    try:
        with quiet.pillow(lenient=lenient), Image.open(io.BytesIO(data), formats=_READERS[info.format]) as image:
            # The same file can state two sizes, and Pillow may use the other one; it allocates nothing before load().
            if image.width * image.height > info.pixels:
                height, width = info.upright_size
                two = f"{image.width} x {image.height} and {width} x {height}"
                return DecodeError(f"the {info.format.upper()} states two sizes: {two}")
            if info.format == "tif":  # Pillow turns TIFFs while loading, and would use other tags and XMP too
                image.getexif()[_ORIENTATION] = info.orientation
            image.load()
            _check_mode(image.mode, info)
            return by_bands((image.height, image.width), lambda rows: _rgb(_rows(image, rows), info, background, inks))
    except DecodeError as error:
        return error
    except Exception as error:
        if resource_error(error) is not None:  # of memory; or of descriptors, since plugins are loaded here
            raise
        # Pillow's plugins raise whatever their parsing runs into (OSError, SyntaxError, struct.error, KeyError, ...).
        if isinstance(error, UnidentifiedImageError):
            message = f"the {info.format.upper()} is of an unsupported form or damaged; re-save it first"
        else:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            message = f"the {info.format.upper()} cannot be decoded: {reason}"
        failed = DecodeError(message)
        failed.__cause__ = error
        return failed


def _rows(image: Image.Image, rows: slice) -> Image.Image:
    return image.crop((0, rows.start, image.width, rows.stop))


def _check_mode(mode: str, info: ImageInfo) -> None:
    if mode == "F" or (mode == "I" and info.format == "tif"):
        raise UnsupportedError("samples of 32 bits have no fixed white; scale them to 8 or 16 bits first")
    if mode == "LAB":
        raise UnsupportedError("an image in CIELAB colours is not read; convert it to RGB first")


def _rgb(image: Image.Image, info: ImageInfo, background: int | None, inks: Conversion | None) -> NDArray[np.uint8]:
    if inks is not None and image.mode == "CMYK":
        image = inks.image(image)
    if image.mode.startswith("I"):
        return three(_deep_gray(image, info))
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        return blend(np.asarray(image.convert("RGBA")), background)
    return np.asarray(image.convert("RGB"))


def _deep_gray(image: Image.Image, info: ImageInfo) -> NDArray[np.uint8]:
    """Gray of more than eight bits, which Pillow's own conversion would clip."""
    samples = np.asarray(image)
    # Pillow scales PGM and JPEG 2000 to 16 bits itself; TIFF's 12 bits it unpacks as they are.
    gray = eight_bits(samples, info.bits if info.format == "tif" else 16)
    return 255 - gray if info.mode == "gray-inverted" else gray
