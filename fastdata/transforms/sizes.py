"""Sizes of images that keep their aspect, rounded down as in torchvision."""

from __future__ import annotations

from fastdata.size import Size


def shorter(source: Size, size: int, longest: int | None) -> Size:
    """The size whose shorter side is `size` and whose longer side is at most `longest`."""
    height, width = source
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    if longest is not None and new_long > longest:
        new_short, new_long = max(1, int(longest * new_short / new_long)), longest
    return Size(new_long, new_short) if width <= height else Size(new_short, new_long)


def longer(source: Size, size: int) -> Size:
    """The size whose longer side is `size`."""
    height, width = source
    other = max(1, int(size * min(source) / max(source)))
    return Size(size, other) if width <= height else Size(other, size)


def fitting(source: Size, bounds: Size) -> Size:
    """The largest size that fits into `bounds`."""
    height, width = source
    if bounds.width * height <= bounds.height * width:
        return Size(max(1, bounds.width * height // width), bounds.width)
    return Size(bounds.height, max(1, bounds.height * width // height))
