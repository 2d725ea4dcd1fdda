"""Sizes of images that keep their aspect: (width, height) in, (width, height) out, rounded as torchvision does."""

from __future__ import annotations

from fastdata.transforms.plan import Size


def shorter(source: Size, size: int, longest: int | None) -> Size:
    """With the shorter side `size`, and the longer one at most `longest`."""
    width, height = source
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    if longest is not None and new_long > longest:
        new_short, new_long = max(1, int(longest * new_short / new_long)), longest
    return (new_short, new_long) if width <= height else (new_long, new_short)


def longer(source: Size, size: int) -> Size:
    """With the longer side `size`."""
    width, height = source
    other = max(1, int(size * min(source) / max(source)))
    return (other, size) if width <= height else (size, other)
