"""Geometry: from a picture's size and the resize options to a plan. Pure arithmetic on integers.

In: width, height (upright), the side asked for, the mode. Out: a `ResizePlan`, or None where the picture stays as it
is; and by how much the decoder may shrink it beforehand. Promise: the side asked for is exactly N, no side under 1.
"""

from __future__ import annotations

from dataclasses import dataclass

RESIZE_MODES = ("shorter", "longer", "exact", "crop", "pad")

# What libjpeg can shrink by while decoding, the largest first.
_REDUCTIONS = (8, 4, 2)
# The reduced picture stays at least this many times the target in both directions, so that the antialiased filter
# which follows still has whole source pixels to average and the choice of scale stays invisible.
_HEADROOM = 2


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """Resize to `width` x `height`, then centre on `out_width` x `out_height`: cut what is over, fill what is missing.

    `left` and `top` are the distance between the two upper left corners: where the cut begins, or where the picture
    lies on its canvas. They are 0 where the sizes are equal.
    """

    width: int
    height: int
    out_width: int
    out_height: int
    left: int = 0
    top: int = 0

    @property
    def pixels(self) -> int:
        """Of the resized picture, before anything is cut off or filled in."""
        return self.width * self.height

    @property
    def crops(self) -> bool:
        """Whether something is cut off after the resize."""
        return self.width > self.out_width or self.height > self.out_height

    @property
    def pads(self) -> bool:
        """Whether the resized picture lies on a larger canvas."""
        return self.width < self.out_width or self.height < self.out_height


def plan_resize(width: int, height: int, side: int, mode: str, *, upscale: bool = False) -> ResizePlan | None:
    """The plan for one picture, None where nothing is to be done.

    `shorter` and `longer` leave a smaller picture alone unless `upscale`; `exact`, `crop` and `pad` always give
    `side` x `side`. The other side is rounded down, as torchvision's `Resize` does.

    >>> plan_resize(640, 427, 256, "shorter")
    ResizePlan(width=383, height=256, out_width=383, out_height=256, left=0, top=0)
    >>> plan_resize(100, 50, 256, "shorter") is None
    True
    """
    if mode == "exact":
        plan = ResizePlan(side, side, side, side)
    elif mode == "crop":
        new_width, new_height = _scaled(width, height, side, min(width, height))
        plan = _centred(new_width, new_height, side)
    elif mode == "pad":
        known = max(width, height)
        new_width, new_height = _scaled(width, height, side if upscale or known > side else known, known)
        plan = _centred(new_width, new_height, side)
    else:
        known = min(width, height) if mode == "shorter" else max(width, height)
        if known < side and not upscale:
            return None
        new_width, new_height = _scaled(width, height, side, known)
        plan = ResizePlan(new_width, new_height, new_width, new_height)
    unchanged = (plan.width, plan.height) == (width, height) == (plan.out_width, plan.out_height)
    return None if unchanged else plan


def reduction(width: int, height: int, plan: ResizePlan) -> int:
    """By how much (1, 2, 4, 8) a decoder may shrink the picture before the plan is carried out."""
    for scale in _REDUCTIONS:
        if width // scale >= _HEADROOM * plan.width and height // scale >= _HEADROOM * plan.height:
            return scale
    return 1


def reduced_region(width: int, height: int, scale: int, orientation: int = 1) -> tuple[float, float, float, float]:
    """Where a width x height picture lies within itself decoded at 1/scale, as (x0, y0, x1, y1).

    The decoder rounds sides up, so the last row and column can be less than a whole pixel; taken for whole, they
    would shift the picture by up to half a target pixel. They are last as stored: a turned picture has them first.

    >>> reduced_region(500, 376, 8), reduced_region(500, 376, 8, orientation=2)
    ((0.0, 0.0, 62.5, 47.0), (0.5, 0.0, 63.0, 47.0))
    """
    new_width, new_height = -(-width // scale), -(-height // scale)
    left = new_width - width / scale if orientation in (2, 3, 6, 7) else 0.0
    top = new_height - height / scale if orientation in (3, 4, 7, 8) else 0.0
    return left, top, left + width / scale, top + height / scale


def _scaled(width: int, height: int, side: int, known: int) -> tuple[int, int]:
    """Both sides times side / known, rounded down: the known side becomes exactly `side`, none falls under 1."""
    return max(1, width * side // known), max(1, height * side // known)


def _centred(width: int, height: int, side: int) -> ResizePlan:
    # torchvision's CenterCrop rounds the cut's corner half to even; a canvas's corner is rounded down.
    left, top = (round((size - side) / 2) if size > side else (side - size) // 2 for size in (width, height))
    return ResizePlan(width, height, side, side, left, top)
