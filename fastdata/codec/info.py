"""ImageInfo: what a file says of its picture before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass

from fastdata.size import Size

Data = bytes | bytearray | memoryview
"""What every function of the codec takes: contiguous bytes, read and never changed."""

# Twice the size at which Pillow warns, where it refuses by itself; half a gigabyte of RGB.
MAX_PIXELS = 178_956_970
# No image needs more than this for a pixel (four channels of 16 bits), and headers need little.
_MOST_BYTES_PER_PIXEL = 8
_HEADER_BYTES = 64 << 20


def most_bytes(max_pixels: int) -> int:
    """What an encoded image of so many pixels may take; what is longer is refused before it is read."""
    return _MOST_BYTES_PER_PIXEL * max_pixels + _HEADER_BYTES


# libjpeg stops a little below the 16 bits of a JPEG's frame header; a WebP's sides have 14 bits; libpng writes no
# longer sides unless it is told to, which OpenCV does not.
LONGEST_SIDES = {"jpg": 65_500, "webp": 16_383, "png": 1_000_000}


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a header says.

    Attributes:
        format: the kind of file, as `sniff` names it.
        width: stored width, before any turn.
        height: stored height, before any turn.
        orientation: how the stored picture is to be turned, by EXIF's numbers 1 to 8.
        bits: bits a sample.
        mode: `gray`, `rgb`, `palette`, `cmyk` or another name that the container gives its colours.
        alpha: the file carries transparency of any sort.
        animated: there are more frames or pages than the first.
        lossless: decoding gives the pixels that were encoded.
        cut: "" or in what way the data end early.
        claimed: the most pixels that decoding may have to hold at once: a tile or frame can exceed the picture.
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
        """The number that is held against `max_pixels`."""
        return max(self.width * self.height, self.claimed)

    @property
    def upright_size(self) -> Size:
        """The size that is seen, after the turn."""
        return Size(self.height, self.width) if self.orientation < 5 else Size(self.width, self.height)
