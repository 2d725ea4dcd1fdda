"""Engines: the antialiased bilinear filter, in whatever is installed, and plain linear interpolation in OpenCV.

In: pixels, the region of them that counts (floats), the size it is resized to, and the window of that which is wanted.
Out: exactly the window. Where a side shrinks and antialiasing is wanted, the first of these that there is:

- cykooz-resizer: needs no torch, so workers stay small;
- torch's uint8 kernel, which is as fast and lies in every installation, but costs each worker torch's import;
- Pillow, for platforms where neither can be loaded.

All are within 1 level of each other and of Pillow. Where nothing shrinks the same filter is plain linear interpolation,
and OpenCV does it, as it does with `antialias=False`.
"""

from __future__ import annotations

import functools

import cv2

from fastdata.codec.engines import RGB, Engine, Region, cykooz, pillow, pytorch
from fastdata.size import Size
from fastdata.transforms.plan import Box


def engine_name() -> str:
    """The engine that shrinks, with its version."""
    return engine().name


@functools.cache
def engine() -> Engine:
    """The best engine that can be loaded."""
    for make in (cykooz, pytorch):
        try:
            return make()
        except ImportError:
            continue
    return pillow()


def resample(
    pixels: RGB,
    region: Region,
    size: Size,
    window: Box | None,
    antialias: bool,
    out: RGB | None,
) -> RGB:
    """Resize a region and give a window of the result.

    Args:
        pixels: H x W x 3, maybe a view.
        region: (x0, y0, x1, y1) in `pixels`; what a window does not need of it may lie outside.
        size: what the region becomes.
        window: the box of that which is wanted; None for all.
        antialias: filter where a side shrinks.
        out: contiguous, of the result's shape; it may be used.

    Returns:
        The pixels: `out`, a new array, or a view of `pixels` where nothing is resized.
    """
    x0, y0, x1, y1 = region
    shrinks = antialias and (x1 - x0 > size.width or y1 - y0 > size.height)
    left, top, right, bottom = (round(side) for side in region)
    if window is None and (left, top, right, bottom) == region:
        view = pixels[top:bottom, left:right]
        if (bottom - top, right - left) == size:
            return view
        return engine().shrink(view, size, None, out) if shrinks else _linear(view, size, out)
    if shrinks and engine().regions:
        return _boxed(pixels, region, size, window, out)
    if window is not None and (bottom - top, right - left) == size:  # a reduced decode has done it
        return pixels[top + window[1] : top + window[3], left + window[0] : left + window[2]]
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    whole = resample(pixels, (left, top, right, bottom), size, None, antialias, out if window is None else None)
    if window is None:
        return whole
    return whole[window[1] : window[3], window[0] : window[2]]


def takes_boxes(region: Size, size: Size, antialias: bool) -> bool:
    """Whether a window of such a resize needs only a part of the region."""
    return antialias and (region.height > size.height or region.width > size.width) and engine().regions


def _boxed(pixels: RGB, region: Region, size: Size, window: Box | None, out: RGB | None) -> RGB:
    """By an engine that takes regions of floats; the pixels outside the region are kept from it."""
    x0, y0, x1, y1 = region
    # The filter ends at the region's own edges, as if it had been cut out first.
    left, top = max(int(x0 // 1), 0), max(int(y0 // 1), 0)
    view = pixels[top : int(-(-y1 // 1)), left : int(-(-x1 // 1))]
    if window is not None:
        across, down = (x1 - x0) / size.width, (y1 - y0) / size.height
        a0, b0, a1, b1 = window
        x0, y0, x1, y1 = x0 + a0 * across, y0 + b0 * down, x0 + a1 * across, y0 + b1 * down
        size = Size(b1 - b0, a1 - a0)
    inside = (x0 - left, y0 - top, min(x1 - left, view.shape[1]), min(y1 - top, view.shape[0]))
    return engine().shrink(view, size, inside, out)


def _linear(pixels: RGB, size: Size, out: RGB | None) -> RGB:
    return cv2.resize(pixels, (size.width, size.height), dst=out, interpolation=cv2.INTER_LINEAR)  # type: ignore[return-value]
