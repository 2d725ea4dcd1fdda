"""ImageInfo: what the header of an image file states."""

from __future__ import annotations

from dataclasses import dataclass

from fastdata.size import Size

Data = bytes | bytearray | memoryview
"""The input of every function of the codec: contiguous bytes, never changed."""

# Twice the size at which Pillow warns, at which Pillow itself raises; half a gigabyte of RGB.
MAX_PIXELS = 178_956_970
# No image needs more than this for a pixel (four channels of 16 bits), and headers need little.
_MOST_BYTES_PER_PIXEL = 8
_HEADER_BYTES = 64 << 20


def most_bytes(max_pixels: int) -> int:
    """The most bytes that an encoded image of this many pixels may have; a longer one is refused before it is read."""
    return _MOST_BYTES_PER_PIXEL * max_pixels + _HEADER_BYTES


# libjpeg's limit is a little below the 16 bits of a JPEG's frame header; a WebP's sides have 14 bits; libpng's limit
# can be raised, but OpenCV does not.
LONGEST_SIDES = {"jpg": 65_500, "webp": 16_383, "png": 1_000_000}


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a header states.

    Attributes:
        format: the kind of file, as `sniff` names it.
        width: stored width, before the orientation is applied.
        height: stored height, before the orientation is applied.
        orientation: EXIF's orientation of the stored image, 1 to 8.
        bits: bits a sample.
        mode: `gray`, `rgb`, `palette`, `cmyk` or another name that the container gives its colours.
        alpha: the file has transparency of any sort.
        animated: there are more frames or pages than the first.
        lossless: decoding gives the pixels that were encoded.
        cut: how the data end early, "" if they do not.
        claimed: the most pixels that decoding may have to hold at once: a tile or frame can exceed the image.
    """

    format: str
    width: int
    height: int
    orientation: int = 1
    bits: int = 8
    mode: str = "rgb"
    alpha: bool = False
    animated: bool = False
    lossless: bool = True
    cut: str = ""
    claimed: int = 0

    @property
    def pixels(self) -> int:
        """The number that `max_pixels` limits."""
        return max(self.width * self.height, self.claimed)

    @property
    def upright_size(self) -> Size:
        """The size after the orientation is applied."""
        return Size(self.height, self.width) if self.orientation < 5 else Size(self.width, self.height)
