"""Encoded images that can decode a part of themselves.

`open_encoded` looks at the bytes and gives one of three:

- `IndexedJpeg`: a JPEG whose restart intervals are known. What covers a region is cut out, and only that is decoded.
- `RawPixels`: pixels that lie in the data as they are. Nothing is decoded or copied.
- `WholeImage`: anything else, which is decoded whole.

All are asked for a region in the same way. The `Part` that they give says where its pixels begin and how large the
image is, so that the result is the same whatever came along with the region.
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

_own = threading.local()
# Crops of up to a megapixel; pages that no crop reaches are never touched, so they take no memory.
_SCRATCH_BYTES = 3 << 20
_NO_PIXELS = np.empty((0, 0, 3), np.uint8)
# Orientations that mirror the stored axis which becomes the upright x or y.
_MIRRORED_X, _MIRRORED_Y = frozenset({2, 3, 6, 7}), frozenset({3, 4, 7, 8})


class Part(NamedTuple):
    """Decoded pixels: a region of an image, and what came along with it.

    Attributes:
        pixels: H x W x 3 uint8, upright.
        origin: (x, y) of the first one in the whole image at 1/scale, in pixels of that. They are fractions where a
            side that is mirrored is no multiple of the scale.
        scale: the pixels are at 1/scale.
        size: of the whole image, upright, as the data give it. A header may have stated another one.
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
            region: (x0, y0, x1, y1), half-open, of the upright image. The part covers it where it lies in the image;
                its pixels may be in memory that this thread's next call uses, or the data's own. None: the whole
                image, in an array that belongs to the caller.
            scale: decode at 1/scale (1, 2, 4 or 8) where that can be done while decoding, as in JPEGs.
            notes: takes what there is to say of the data.

        Raises:
            DecodeError: the data give no image.
        """


class DamagedPart(Exception):
    """The decoder complains of a part. Decode the whole image instead, which tells what is wrong or mends it."""


class PreparedDecode(NamedTuple):
    """A part of a JPEG that was cut out, but not decoded yet. The JPEG that it is of is not needed any more.

    Attributes:
        jpeg: the part, as a JPEG of its own; empty where no pixel is wanted.
        size: of that.
        origin: (x, y) of its corner in the whole image.
        scale: decode it at 1/scale.
        whole: the size of the whole image.
    """

    jpeg: Data
    size: Size
    origin: tuple[int, int]
    scale: int
    whole: Size

    def decode(self) -> Part:
        """Decode it, into memory that this thread's next call uses.

        Raises:
            DamagedPart: the decoder complains.
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
    """A JPEG that parts can be cut out of. It is stored upright, in gray or three colours."""

    found: Cuttable
    rules: Rules

    @property
    def size(self) -> Size:
        return self.found.header.size

    def prepare(self, region: Box, scale: int = 1) -> PreparedDecode:
        """Cut out what covers a region; see `EncodedImage.decode`.

        Many that are prepared and then decoded are quicker than one after the other: each half finds its code and
        tables in the processor's caches.
        """
        size = self.found.header.size
        x0, y0, x1, y1 = region
        if x0 == x1 or y0 == y1:
            return PreparedDecode(b"", size, (0, 0), 1, size)
        if scale > 1:  # whole pixels of the reduced image
            x0, y0 = x0 - x0 % scale, y0 - y0 % scale
            x1, y1 = min(-(-x1 // scale) * scale, size.width), min(-(-y1 // scale) * scale, size.height)
        small, origin, small_size = cut_loaded(self.found, (x0, y0, x1, y1), scale)
        # What needs all of it is the data themselves, which may be gone when it is decoded.
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
    """An array of pixels that lies in the data."""

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
    """An image of any kind, which is decoded whole."""

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
        """Decode all of it, into an array that belongs to the caller; `colors`: the way to sRGB."""
        rules, info, size = self.rules, self.info, self.size
        pixels = decode(
            self.data, alpha=rules.alpha, max_pixels=rules.max_pixels, keep_damaged=rules.keep_damaged, reduce=scale,
            info=info, notes=notes, colors=colors,
        )  # fmt: skip
        found = Size(*pixels.shape[:2])
        # The scale is none of this kind's, or changes nothing; or the header stated another size.
        if found == size or found != (-(-size.height // scale), -(-size.width // scale)):
            return Part(pixels, (0, 0), 1, found)
        # Sides are rounded up from the stored corner, so what is mirrored begins within a pixel.
        x = size.width / scale - found.width if info.orientation in _MIRRORED_X else 0
        y = size.height / scale - found.height if info.orientation in _MIRRORED_Y else 0
        return Part(pixels, (x, y), scale, size)


def open_encoded(data: Data, rules: Rules = DEFAULT_RULES) -> EncodedImage:
    """Open an encoded image, so that no more of it is decoded than is needed.

    Args:
        data: the whole file, any bytes-like; never changed. The image refers to it.
        rules: how it is decoded.

    Raises:
        DecodeError: the header makes no sense, or the data are no image.
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
    """Open an encoded image that is to be decoded whole, whatever it is; see `open_encoded`."""
    return WholeImage(data, rules, probe(data))


@functools.lru_cache(maxsize=256)
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, int]:
    return npy_layout(header)


def raw_view(data: Data, max_pixels: int = MAX_PIXELS) -> RGB | None:
    """Raw RGB pixels where they lie, nothing copied; None where they need more than that (gray, alpha, cut, ...)."""
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
    """Memory of this thread for the pixels of parts: fresh pages for each would cost time."""
    if not hasattr(_own, "scratch"):
        _own.scratch = np.empty(_SCRATCH_BYTES, np.uint8)
    return _own.scratch  # type: ignore[no-any-return]
