"""Encoded images that can decode a part of themselves.

`open_encoded` looks at the bytes and returns one of three classes:

- `IndexedJpeg`: a JPEG whose restart intervals are known. Only the intervals that cover a region are decoded.
- `RawPixels`: pixels stored uncompressed. Nothing is decoded or copied.
- `WholeImage`: anything else, which is decoded whole.

All have the same `decode(region)`. It returns a `Part`: pixels that cover the region, where they begin, and the size of
the whole image, so callers get the same pixels however much was decoded.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.codec import jpeg
from fastdata.codec.cropindex import Box, Cuttable, cut_loaded, load
from fastdata.codec.decode import DEFAULT_RULES, Rules, decode
from fastdata.codec.headers.simple import npy_layout
from fastdata.codec.info import MAX_PIXELS
from fastdata.codec.sniff import probe
from fastdata.size import Size

if TYPE_CHECKING:
    from fastdata.codec.icc import Conversion
    from fastdata.codec.info import Data, ImageInfo

RGB = NDArray[np.uint8]

_thread = threading.local()
# Enough for crops of a megapixel; pages that no crop reaches are never touched, so they take no memory.
_SCRATCH_BYTES = 3 << 20
_NO_PIXELS = np.empty((0, 0, 3), np.uint8)
# Orientations that mirror the stored axis which becomes the upright x or y.
_MIRRORED_X, _MIRRORED_Y = frozenset({2, 3, 6, 7}), frozenset({3, 4, 7, 8})


class Part(NamedTuple):
    """Decoded pixels that cover a region of an image.

    Attributes:
        pixels: H x W x 3 uint8, upright.
        origin: (x, y) of the first pixel, in pixels of the whole image at 1/scale. They are fractions if a mirrored
            side is not a multiple of the scale.
        scale: the pixels are at 1/scale.
        size: the upright size of the whole image, as decoded. The header may state another one.
    """

    pixels: RGB
    origin: tuple[float, float]
    scale: int
    size: Size


class EncodedImage(Protocol):
    """An encoded image, opened but not decoded."""

    @property
    def size(self) -> Size:
        """The upright size that the header states."""

    def decode(self, region: Box | None = None, scale: int = 1, *, notes: list[str] | None = None) -> Part:
        """Decode a region, or the whole image.

        Args:
            region: (x0, y0, x1, y1), half-open, of the upright image. The part covers what of it lies in the image;
                its pixels may be in memory that this thread's next call overwrites, or in the data. None: the whole
                image, in an array that belongs to the caller.
            scale: decode at 1/scale (1, 2, 4 or 8) if the decoder can, as for JPEGs.
            notes: a line is appended for each repair and each report of a decoder.

        Raises:
            DecodeError: the data cannot be decoded.
        """


class DamagedPart(Exception):
    """The decoder reports damage in a part. Decode the whole image instead, which reports or repairs the damage."""


class PreparedDecode(NamedTuple):
    """A part of a JPEG, cut out and ready to decode. The bytes of the whole JPEG are no longer needed.

    Attributes:
        jpeg: the part, as a small JPEG; empty if the region is empty.
        size: of the small JPEG.
        origin: (x, y) of its upper left corner in the whole image.
        scale: decode at 1/scale.
        whole: the size of the whole image.
    """

    jpeg: Data
    size: Size
    origin: tuple[int, int]
    scale: int
    whole: Size

    def decode(self) -> Part:
        """Decode the part, into memory that this thread's next call overwrites.

        Raises:
            DamagedPart: the decoder reports damage.
        """
        if not self.jpeg:
            return Part(_NO_PIXELS, (0, 0), 1, self.whole)
        pixels = jpeg.pixels(self.jpeg, self.scale, self.size, _scratch())
        if pixels is None:
            raise DamagedPart
        x, y = self.origin
        return Part(pixels, (x // self.scale, y // self.scale), self.scale, self.whole)


@dataclass(slots=True, eq=False)
class IndexedJpeg:
    """A JPEG whose parts can be decoded alone. It is stored upright, in gray or three colours."""

    found: Cuttable
    rules: Rules

    @property
    def size(self) -> Size:
        return self.found.header.size

    def prepare(self, region: Box, scale: int = 1) -> PreparedDecode:
        """Cut out what covers a region; see `EncodedImage.decode`.

        Preparing many images and then decoding them is faster than doing both for one after the other: each step finds
        its code and tables in the processor's caches.
        """
        size = self.found.header.size
        x0, y0, x1, y1 = region
        if x0 == x1 or y0 == y1:
            return PreparedDecode(b"", size, (0, 0), 1, size)
        if scale > 1:  # whole pixels of the reduced image
            x0, y0 = x0 - x0 % scale, y0 - y0 % scale
            x1, y1 = min(-(-x1 // scale) * scale, size.width), min(-(-y1 // scale) * scale, size.height)
        small, origin, small_size = cut_loaded(self.found, (x0, y0, x1, y1), scale)
        # If the region needs the whole JPEG, copy it: the data may be gone when it is decoded.
        return PreparedDecode(bytes(small) if small is self.found.jpeg else small, small_size, origin, scale, size)

    def decode(self, region: Box | None = None, scale: int = 1, *, notes: list[str] | None = None) -> Part:
        if region is not None:
            try:
                return self.prepare(region, scale).decode()
            except DamagedPart:
                pass
        return open_whole(self.found.jpeg, self.rules).decode(None, scale, notes=notes)


@dataclass(slots=True, eq=False)
class RawPixels:
    """Pixels stored uncompressed, as a view of the data."""

    pixels: RGB
    size: Size

    def decode(
        self,
        region: Box | None = None,
        scale: int = 1,  # noqa: ARG002
        *,
        notes: list[str] | None = None,  # noqa: ARG002
    ) -> Part:
        return Part(self.pixels.copy() if region is None else self.pixels, (0, 0), 1, self.size)


@dataclass(slots=True, eq=False)
class WholeImage:
    """An image of any kind that is decoded whole."""

    data: Data
    rules: Rules
    info: ImageInfo

    @property
    def size(self) -> Size:
        return self.info.upright_size

    def decode(
        self,
        region: Box | None = None,  # noqa: ARG002
        scale: int = 1,
        *,
        notes: list[str] | None = None,
        colors: Conversion | None = None,
    ) -> Part:
        """Decode the whole image, into an array that belongs to the caller. `colors` converts it to sRGB."""
        rules, info, size = self.rules, self.info, self.size
        pixels = decode(
            self.data, alpha=rules.alpha, max_pixels=rules.max_pixels, keep_damaged=rules.keep_damaged, reduce=scale,
            info=info, notes=notes, colors=colors,
        )  # fmt: skip
        found = Size(*pixels.shape[:2])
        # This kind ignores the scale, or the scale changes nothing, or the header stated another size.
        if found == size or found != (-(-size.height // scale), -(-size.width // scale)):
            return Part(pixels, (0, 0), 1, found)
        # Sides are rounded up from the stored corner, so a mirrored image begins within a pixel.
        x = size.width / scale - found.width if info.orientation in _MIRRORED_X else 0
        y = size.height / scale - found.height if info.orientation in _MIRRORED_Y else 0
        return Part(pixels, (x, y), scale, size)


def open_encoded(data: Data, rules: Rules = DEFAULT_RULES) -> EncodedImage:
    """Open an encoded image, so that only the needed part of it is decoded.

    Args:
        data: the whole file, any bytes-like; never changed. The image refers to it.
        rules: how it is decoded.

    Raises:
        DecodeError: the header is invalid, or the data are not an image.
    """
    if data[:2] == b"\xff\xd8":
        found = load(data)
        if found is not None and found.header.plain:
            height, width = found.header.size
            if height * width <= rules.max_pixels:
                return IndexedJpeg(found, rules)
    elif data[:6] == b"\x93NUMPY":
        pixels = raw_view(data, rules.max_pixels)
        if pixels is not None:
            return RawPixels(pixels, Size(*pixels.shape[:2]))
    return open_whole(data, rules)


def open_whole(data: Data, rules: Rules = DEFAULT_RULES) -> WholeImage:
    """Open an encoded image of any kind to decode it whole; see `open_encoded`."""
    return WholeImage(data, rules, probe(data))


@functools.lru_cache(maxsize=256)
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, int]:
    return npy_layout(header)


def raw_view(data: Data, max_pixels: int = MAX_PIXELS) -> RGB | None:
    """A view of raw RGB pixels, without a copy; None if they must be decoded (gray, alpha, cut, ...)."""
    if len(data) < 128 or data[6:7] != b"\x01":  # the version that every such image has
        return None
    shape, fortran, offset = _layout(bytes(data[: 10 + int.from_bytes(data[8:10], "little")]))
    if fortran or len(shape) != 3 or shape[2] != 3 or shape[0] * shape[1] > max_pixels:
        return None
    count = shape[0] * shape[1] * 3
    if offset + count > len(data):
        return None
    return np.frombuffer(data, np.uint8, count, offset).reshape(shape)


def _scratch() -> RGB:
    """Memory of this thread for the pixels of parts: allocating fresh pages for each part would cost time."""
    if not hasattr(_thread, "scratch"):
        _thread.scratch = np.empty(_SCRATCH_BYTES, np.uint8)
    return _thread.scratch  # type: ignore[no-any-return]
