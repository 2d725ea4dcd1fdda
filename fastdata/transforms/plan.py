"""Plan: the geometry of one image as a value, computed before any pixel is decoded.

Crops, resizes, flips and paddings, in any order, become the region of the source that is needed and what is done with
it. The same plan applies to the image, its mask and its boxes.

A plan is one resize with what surrounds it, in this order:

    region `box` of the source -> resized to `size` -> only its `window` -> mirrored -> laid on `canvas`

Later crops and flips are brought into this form by arithmetic: a crop after a resize narrows the window, a crop after a
flip is mirrored. A step that does not fit (a second resize, a second colour of padding) starts a new plan, whose source
is the result of the one `before`. The pixels are those of doing one step after the other, as torchvision does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fastdata.size import Size

Box = tuple[int, int, int, int]
"""Half-open: (x0, y0, x1, y1)."""
Fill = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Canvas:
    """A plain background: its size, where the image's upper left corner lies on it, and its RGB."""

    size: Size
    x: int
    y: int
    fill: Fill


class Plan(NamedTuple):
    """One resize of a region and what surrounds it. Sizes are (height, width), boxes half-open (x0, y0, x1, y1).

    A tuple, since each sample makes several: a frozen dataclass takes three times as long.

    Attributes:
        source: the size of the upright image, or of the result of `before`.
        box: the region of the source.
        size: what the region is resized to.
        window: the box of the resized region that is kept; None for all of it.
        flip_x: mirrored left to right.
        flip_y: mirrored top to bottom.
        canvas: what the result is laid on.
        antialias: shrink with an antialiasing filter.
        before: the plan that makes this one's source; None if that is the image itself.
    """

    source: Size
    box: Box
    size: Size
    window: Box | None = None
    flip_x: bool = False
    flip_y: bool = False
    canvas: Canvas | None = None
    antialias: bool = True
    before: Plan | None = None

    @classmethod
    def whole(cls, source: tuple[int, int]) -> Plan:
        """The plan that leaves an image of (height, width) unchanged."""
        height, width = source
        size = Size(height, width)
        return cls(size, (0, 0, width, height), size)

    @property
    def region(self) -> Size:
        """The size of `box`."""
        x0, y0, x1, y1 = self.box
        return Size(y1 - y0, x1 - x0)

    @property
    def content(self) -> Size:
        """The size of the result without its canvas."""
        if self.window is None:
            return self.size
        x0, y0, x1, y1 = self.window
        return Size(y1 - y0, x1 - x0)

    @property
    def out_size(self) -> Size:
        """The size of the result."""
        return self.content if self.canvas is None else self.canvas.size

    @property
    def resizes(self) -> bool:
        x0, y0, x1, y1 = self.box
        return self.size != (y1 - y0, x1 - x0)

    @property
    def changes(self) -> bool:
        """Whether the result differs from the image."""
        x0, y0, x1, y1 = self.box
        whole = (x0, y0) == (0, 0) and (y1, x1) == self.source == self.size and self.before is None
        return not whole or self.flip_x or self.flip_y or self.canvas is not None

    @property
    def first(self) -> Plan:
        """The plan whose source is the image."""
        plan = self
        while plan.before is not None:
            plan = plan.before
        return plan

    def crop(self, box: Box) -> Plan:
        """Crop the result to a box, which must lie inside it."""
        if self.canvas is None:
            return self._narrowed(box, None)
        # The part of the box that the image covers, and the background that is left around it.
        canvas = self.canvas
        height, width = self.content
        left, top = min(max(box[0] - canvas.x, 0), width), min(max(box[1] - canvas.y, 0), height)
        right, bottom = max(min(box[2] - canvas.x, width), left), max(min(box[3] - canvas.y, height), top)
        size = Size(box[3] - box[1], box[2] - box[0])
        if (bottom - top, right - left) == size:
            return self._narrowed((left, top, right, bottom), None)
        x, y = max(canvas.x - box[0], 0), max(canvas.y - box[1], 0)
        return self._narrowed((left, top, right, bottom), Canvas(size, x, y, canvas.fill))

    def _narrowed(self, part: Box, canvas: Canvas | None) -> Plan:
        """Only a part of the content, given in coordinates after the flips."""
        a0, b0, a1, b1 = part
        height, width = self.content
        if self.flip_x:
            a0, a1 = width - a1, width - a0
        if self.flip_y:
            b0, b1 = height - b1, height - b0
        box, size, window = self.box, self.size, self.window
        if self.resizes:
            x, y = (0, 0) if window is None else window[:2]
            window = (x + a0, y + b0, x + a1, y + b1)
            if window == (0, 0, size.width, size.height):
                window = None
        else:
            box = (box[0] + a0, box[1] + b0, box[0] + a1, box[1] + b1)
            size = Size(b1 - b0, a1 - a0)
        return Plan(
            self.source, box, size, window, self.flip_x, self.flip_y, canvas, self.antialias, self.before
        )  # fmt: skip

    def resize(self, size: tuple[int, int], *, antialias: bool = True) -> Plan:
        """Resize the result to (height, width)."""
        if size == self.out_size:
            return self
        height, width = size
        size = Size(height, width)
        if self.canvas is None and not self.resizes:
            return Plan(
                self.source, self.box, size, None, self.flip_x, self.flip_y, None, antialias, self.before
            )  # fmt: skip
        return Plan.whole(self.out_size)._replace(size=size, antialias=antialias, before=self)

    def flip(self, *, x: bool = False, y: bool = False) -> Plan:
        """Mirror the result."""
        if not x and not y:
            return self
        canvas = self.canvas
        if canvas is not None:
            height, width = self.content
            canvas = Canvas(
                canvas.size,
                canvas.size.width - width - canvas.x if x else canvas.x,
                canvas.size.height - height - canvas.y if y else canvas.y,
                canvas.fill,
            )
        return Plan(
            self.source, self.box, self.size, self.window, self.flip_x != x, self.flip_y != y, canvas, self.antialias,
            self.before,
        )  # fmt: skip

    def pad(self, size: tuple[int, int], x: int, y: int, fill: Fill) -> Plan:
        """Lay the result on a background of (height, width), its upper left corner at (x, y)."""
        if size == self.out_size:
            return self
        height, width = size
        size = Size(height, width)
        if self.canvas is None:
            return self._replace(canvas=Canvas(size, x, y, fill))
        if self.canvas.fill == fill:
            return self._replace(canvas=Canvas(size, x + self.canvas.x, y + self.canvas.y, fill))
        return Plan.whole(self.out_size)._replace(canvas=Canvas(size, x, y, fill), before=self)


def needed(plan: Plan) -> Box:
    """The part of the plan's own source that its result depends on: no other pixel can change it."""
    if 0 in plan.content:
        return (plan.box[0], plan.box[1], plan.box[0], plan.box[1])
    if plan.window is None:
        return plan.box
    left, top, right, bottom = plan.window
    x0, x1 = _span(plan.box[0], plan.box[2], plan.size.width, left, right)
    y0, y1 = _span(plan.box[1], plan.box[3], plan.size.height, top, bottom)
    return x0, y0, x1, y1


def _span(start: int, stop: int, size: int, first: int, last: int) -> tuple[int, int]:
    """The source pixels that the resized pixels first..last - 1 of start..stop depend on."""
    scale = (stop - start) / size
    # The filter is a triangle that reaches one pixel of the coarser grid to both sides of a pixel's middle; one more
    # source pixel covers rounding.
    reach = max(scale, 1.0) + 1.0
    low = start + (first + 0.5) * scale - reach
    high = start + (last - 0.5) * scale + reach
    return max(math.floor(low), start), min(math.ceil(high), stop)


def stages(plan: Plan, wanted: Callable[[Plan], Box] = needed) -> list[Plan]:
    """The plan and all before it, first to last, each cropped to what the next one needs.

    The boxes keep the coordinates of the uncropped stage before; the pixels that a stage receives begin at the corner
    of `wanted(stage)`.
    """
    out = [plan]
    while plan.before is not None:
        plan = plan.before.crop(wanted(plan))
        out.append(plan)
    return out[::-1]


def reduction(plan: Plan, *, headroom: int = 1) -> int:
    """By how much (8, 4, 2 or 1) a decoder may shrink the plan's source before the plan is carried out.

    Args:
        plan: the plan whose source is decoded.
        headroom: the reduced region stays this many times as large as its target in both directions. 1 loses no detail
            of the target. 2 leaves whole pixels to average, so that the scale is hardly seen in the result.
    """
    (height, width), (x0, y0, x1, y1) = plan.size, plan.box
    if x1 - x0 < 2 * headroom * width or y1 - y0 < 2 * headroom * height:
        return 1
    share = min((x1 - x0) // (headroom * width), (y1 - y0) // (headroom * height))
    return 8 if share >= 8 else 4 if share >= 4 else 2
