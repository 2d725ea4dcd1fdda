"""Checks of the transforms' arguments: what a user may write flows in, one spelling of it flows out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastdata.errors import OptionError
from fastdata.transforms.plan import Fill

# The longest side that a picture of any kind here can have, so that a mistyped size is told at once.
_LONGEST = 65535


def one_side(owner: str, value: Any, more: str = "", *, what: str = "size") -> int:
    """A length in pixels; torchvision also takes it as a sequence of one."""
    given = value
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        given = value[0]
    side = _whole(given)
    if side is None or not 1 <= side <= _LONGEST:
        also = f" {more}" if more else ""
        raise OptionError(f"{owner}: {what} must be an int from 1 to {_LONGEST}{also}, not {value!r}")
    return side


def two_sides(owner: str, value: Any) -> tuple[int, int]:
    """(height, width); an int, or a sequence of one, is a square."""
    sides = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if len(sides) == 2:
        height, width = (_whole(side) for side in sides)
        if height is not None and width is not None and 1 <= height <= _LONGEST and 1 <= width <= _LONGEST:
            return height, width
        raise OptionError(f"{owner}: size must be an int or (height, width), from 1 to {_LONGEST}, not {value!r}")
    side = one_side(owner, value, "or (height, width)")
    return side, side


def check_range(owner: str, name: str, value: Any, *, zero: bool = False) -> tuple[float, float]:
    """(least, most), both above 0; the least may be 0 itself with `zero`."""
    try:
        least, most = (float(bound) for bound in value)
    except (TypeError, ValueError):
        least, most = 0.0, 0.0
    if not 0 <= least <= most < float("inf") or not most or not (least or zero):
        sign = "<=" if zero else "<"
        raise OptionError(f"{owner}: {name} must be (least, most) with 0 {sign} least <= most, not {value!r}")
    return least, most


def check_share(owner: str, name: str, value: Any) -> None:
    """A probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise OptionError(f"{owner}: {name} must be a number from 0 to 1, not {value!r}")


def check_linear(owner: str, value: Any) -> None:
    """The one interpolation that there is, in any of torchvision's and Pillow's spellings."""
    name = getattr(value, "value", value)  # of torchvision's InterpolationMode
    if name not in ("bilinear", 2):
        raise OptionError(
            f"{owner}: interpolation must be 'bilinear', not {value!r}: images are resized bilinearly here; for "
            "another filter put torchvision's transform behind those of fastdata"
        )


def check_longest(name: str, size: int, longest: int | None) -> None:
    """A bound for the longer side, which the shorter one must stay below."""
    if longest is not None and one_side(name, longest, what="max_size") <= size:
        raise OptionError(f"{name}: max_size must be greater than size={size}, not {longest!r}")


def check_flag(owner: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"{owner}: {name} must be True or False, not {value!r}")


def color(owner: str, value: Any) -> Fill:
    """(red, green, blue); one level is a gray."""
    levels = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * 3
    whole = [_whole(level) for level in levels]
    if len(whole) != 3 or any(level is None or not 0 <= level <= 255 for level in whole):
        raise OptionError(f"{owner}: fill must be a level from 0 to 255 or (red, green, blue), not {value!r}")
    red, green, blue = (int(level) for level in levels)
    return red, green, blue


def check_picture(owner: str, image: Any) -> None:
    """H x W x 3 uint8."""
    if isinstance(image, np.ndarray):
        if image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3 and image.size:
            return
        kind = f"{image.dtype} {image.shape}"
    else:
        kind = type(image).__name__
    raise OptionError(
        f"{owner} takes an H x W x 3 array of uint8, not {kind}; "
        f"put it in front of transforms that make tensors: transform=[{owner}(...), the others]"
    )


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
