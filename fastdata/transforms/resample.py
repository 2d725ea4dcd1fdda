"""Resample a region of an image to a size, or to a window of that size.

If a side shrinks with antialiasing, an engine of `fastdata.transforms.engines` is used. If nothing shrinks, the same
filter is plain linear interpolation, for which OpenCV is used, as with `antialias=False`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import cv2

from fastdata.codec.info import MAX_PIXELS
from fastdata.size import Size
from fastdata.transforms.engines import RGB, Engine, Region, best_engine, pillow
from fastdata.transforms.plan import Box, Plan


class ResampleRules(NamedTuple):
    """How regions are resampled.

    Attributes:
        engine: used if a side shrinks.
        max_pixels: a window of an enlarged region is cut out of the whole enlarged region if that has at most this many
            pixels. Of a larger one only the window is made, so that a long strip does not take the memory of all of it.
    """

    engine: Engine
    max_pixels: int = MAX_PIXELS

    def resizer(self, plan: Plan) -> str:
        """The engine that resizes by a plan, with its version; "" if nothing is resized."""
        if not plan.resizes:
            return ""
        height, width = plan.region
        if plan.antialias and (width > plan.size.width or height > plan.size.height):
            return self.engine.name
        only_window = plan.window is not None and self.exceeded(plan.size, height * width)
        return pillow().name if only_window else f"opencv {cv2.__version__}"

    def exceeded(self, size: Size, region_pixels: float) -> bool:
        """Whether an enlarged region is too large to be made whole for a window of it."""
        return size.height * size.width > max(self.max_pixels, region_pixels)


@functools.cache
def default_rules() -> ResampleRules:
    """The best engine that is installed."""
    return ResampleRules(best_engine())


def resample(
    pixels: RGB,
    region: Region,
    size: Size,
    window: Box | None,
    antialias: bool,
    out: RGB | None,
    rules: ResampleRules | None = None,
) -> RGB:
    """Resize a region and return a window of the result.

    Args:
        pixels: H x W x 3, maybe a view.
        region: (x0, y0, x1, y1) in `pixels`; the part that the window does not need may lie outside.
        size: that the region is resized to.
        window: the box of the resized region to return; None for all.
        antialias: filter if a side shrinks.
        out: contiguous, of the result's shape; the result may be written to it.
        rules: None for `default_rules()`.

    Returns:
        The pixels: `out`, a new array, or a view of `pixels` if nothing is resized.
    """
    x0, y0, x1, y1 = region
    rules = rules or default_rules()
    shrinks = antialias and (x1 - x0 > size.width or y1 - y0 > size.height)
    left, top, right, bottom = (round(side) for side in region)
    if window is None and (left, top, right, bottom) == region:
        view = pixels[top:bottom, left:right]
        if (bottom - top, right - left) == size:
            return view
        return rules.engine.shrink(view, size, None, out) if shrinks else _linear(view, size, out)
    if shrinks and rules.engine.regions:
        return _boxed(rules.engine, pixels, region, size, window, out)
    if window is not None and (bottom - top, right - left) == size:  # a reduced decode has resized it already
        return pixels[top + window[1] : top + window[3], left + window[0] : left + window[2]]
    if window is not None and not shrinks and rules.exceeded(size, (x1 - x0) * (y1 - y0)):
        return _boxed(pillow(), pixels, region, size, window, out)
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    target = out if window is None else None
    whole = resample(pixels, (left, top, right, bottom), size, None, antialias, target, rules)
    if window is None:
        return whole
    return whole[window[1] : window[3], window[0] : window[2]]


def takes_boxes(region: Size, size: Size, antialias: bool, rules: ResampleRules | None = None) -> bool:
    """Whether a window of such a resize needs only a part of the region."""
    shrinks = antialias and (region.height > size.height or region.width > size.width)
    return shrinks and (rules or default_rules()).engine.regions


def _boxed(engine: Engine, pixels: RGB, region: Region, size: Size, window: Box | None, out: RGB | None) -> RGB:
    """Resample with an engine that takes regions of floats, without the pixels outside the region."""
    x0, y0, x1, y1 = region
    # The filter stops at the edges of the region, as if the region had been cut out first.
    left, top = max(int(x0 // 1), 0), max(int(y0 // 1), 0)
    view = pixels[top : int(-(-y1 // 1)), left : int(-(-x1 // 1))]
    if window is not None:
        across, down = (x1 - x0) / size.width, (y1 - y0) / size.height
        a0, b0, a1, b1 = window
        x0, y0, x1, y1 = x0 + a0 * across, y0 + b0 * down, x0 + a1 * across, y0 + b1 * down
        size = Size(b1 - b0, a1 - a0)
    inside = (x0 - left, y0 - top, min(x1 - left, view.shape[1]), min(y1 - top, view.shape[0]))
    return engine.shrink(view, size, inside, out)


def _linear(pixels: RGB, size: Size, out: RGB | None) -> RGB:
    return cv2.resize(pixels, (size.width, size.height), dst=out, interpolation=cv2.INTER_LINEAR)  # type: ignore[return-value]
