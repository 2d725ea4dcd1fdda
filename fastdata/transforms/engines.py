"""Engines: the antialiased bilinear filter, in whatever is installed, and plain linear interpolation in OpenCV.

In: pixels, the region of them that counts (floats), the size it is resized to, and the window of that which is wanted.
Out: exactly the window. Where a side shrinks and antialiasing is wanted, the first of these that there is:

- cykooz-resizer (the extra `fast`): needs no torch, so workers stay small;
- torch's uint8 kernel, which is as fast and lies in every installation, but costs each worker torch's import;
- Pillow, for platforms where neither can be loaded.

All are within 1 level of each other and of Pillow. Where nothing shrinks the same filter is plain linear interpolation,
and OpenCV does it, as it does with `antialias=False`.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.transforms.plan import Size

RGB = NDArray[np.uint8]
Region = tuple[float, float, float, float]


class Engine(NamedTuple):
    """A way to shrink.

    Attributes:
        name: with its version.
        boxes: it takes a region of floats.
        shrink: (pixels, region or None, size, out or None) -> pixels; `out` is used where it pays.
    """

    name: str
    boxes: bool
    shrink: Callable[[RGB, Region | None, Size, RGB | None], RGB]


def engine_name() -> str:
    """The engine that shrinks, with its version."""
    return engine().name


@functools.cache
def engine() -> Engine:
    """The best engine that can be loaded."""
    for make in (_cykooz, _torch):
        try:
            return make()
        except ImportError:
            continue
    return _pillow()


def resample(
    pixels: RGB,
    region: Region,
    size: Size,
    window: tuple[int, int, int, int] | None,
    antialias: bool,
    out: RGB | None,
) -> RGB:
    """Resize a region and give a window of the result.

    Args:
        pixels: H x W x 3, maybe a view.
        region: (x0, y0, x1, y1) in `pixels`; what a window does not need of it may lie outside.
        size: (width, height) that the region becomes.
        window: (x, y, width, height) of that; None for all.
        antialias: filter where a side shrinks.
        out: contiguous, of the result's shape; it may be used.

    Returns:
        The pixels: `out`, a new array, or a view of `pixels` where nothing is resized.
    """
    x0, y0, x1, y1 = region
    shrinks = antialias and (x1 - x0 > size[0] or y1 - y0 > size[1])
    left, top, right, bottom = (round(side) for side in region)
    if window is None and (left, top, right, bottom) == region:
        view = pixels[top:bottom, left:right]
        if (right - left, bottom - top) == size:
            return view
        return engine().shrink(view, None, size, out) if shrinks else _linear(view, size, out)
    if shrinks and engine().boxes:
        return _boxed(pixels, region, size, window, out)
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    whole = resample(pixels, (left, top, right, bottom), size, None, antialias, out if window is None else None)
    if window is None:
        return whole
    x, y, width, height = window
    return whole[y : y + height, x : x + width]


def takes_boxes(region: Size, size: Size, antialias: bool) -> bool:
    """Whether a window of such a resize needs only a part of the region."""
    return antialias and (region[0] > size[0] or region[1] > size[1]) and engine().boxes


def _boxed(
    pixels: RGB, region: Region, size: Size, window: tuple[int, int, int, int] | None, out: RGB | None
) -> RGB:
    """By an engine that takes regions of floats; the pixels outside the region are kept from it."""
    x0, y0, x1, y1 = region
    # The filter ends at the region's own edges, as if it had been cut out first.
    left, top = max(int(x0 // 1), 0), max(int(y0 // 1), 0)
    view = pixels[top : int(-(-y1 // 1)), left : int(-(-x1 // 1))]
    if window is not None:
        across, down = (x1 - x0) / size[0], (y1 - y0) / size[1]
        x, y, width, height = window
        x0, y0, x1, y1 = x0 + x * across, y0 + y * down, x0 + (x + width) * across, y0 + (y + height) * down
        size = (width, height)
    inside = (x0 - left, y0 - top, min(x1 - left, view.shape[1]), min(y1 - top, view.shape[0]))
    return engine().shrink(view, inside, size, out)


def _linear(pixels: RGB, size: Size, out: RGB | None) -> RGB:
    return cv2.resize(pixels, size, dst=out, interpolation=cv2.INTER_LINEAR)  # type: ignore[return-value]


def _cykooz() -> Engine:
    from importlib.metadata import version

    from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer

    own = threading.local()  # a resizer keeps buffers, and refuses a second thread at the same time

    def tools() -> tuple[Any, Any, dict[Size, Any]]:
        if not hasattr(own, "tools"):
            options = ResizeOptions(resize_alg=ResizeAlg.convolution(FilterType.bilinear), use_alpha=False)
            own.tools = Resizer(), options, {}
        return own.tools  # type: ignore[no-any-return]

    def shrink(pixels: RGB, region: Region | None, size: Size, out: RGB | None) -> RGB:
        resizer, options, targets = tools()
        target = targets.get(size)
        if target is None:
            targets.clear()  # a run has one size; what others would hold is memory
            target = targets[size] = ImageData(*size, PixelType.U8x3)
        height, width = pixels.shape[:2]
        source = ImageData(width, height, PixelType.U8x3, pixels.tobytes())
        if region is not None:
            options = ResizeOptions(
                resize_alg=options.resize_alg,
                use_alpha=False,
                crop_box=CropBox(region[0], region[1], region[2] - region[0], region[3] - region[1]),
            )
        resizer.resize(source, target, options)
        return np.frombuffer(target.get_buffer(), np.uint8).reshape(size[1], size[0], 3)

    return Engine(f"cykooz-resizer {version('cykooz-resizer')}", True, shrink)


def _torch() -> Engine:
    torch = importlib.import_module("torch")
    kernel = torch.ops.aten._upsample_bilinear2d_aa.out

    def shrink(pixels: RGB, region: Region | None, size: Size, out: RGB | None) -> RGB:
        if not (pixels.flags.c_contiguous and pixels.flags.writeable):  # which torch's own conversion warns of
            pixels = pixels.copy()
        if out is None:
            out = np.empty((size[1], size[0], 3), np.uint8)
        source, target = (torch.from_numpy(array)[None].permute(0, 3, 1, 2) for array in (pixels, out))
        kernel(source, [size[1], size[0]], False, None, None, out=target)
        return out

    return Engine(f"torch {torch.__version__}", False, shrink)


def _pillow() -> Engine:
    import PIL
    from PIL import Image

    def shrink(pixels: RGB, region: Region | None, size: Size, out: RGB | None) -> RGB:
        picture = Image.fromarray(np.ascontiguousarray(pixels))
        return np.array(picture.resize(size, Image.Resampling.BILINEAR, box=region))

    return Engine(f"pillow {PIL.__version__}", True, shrink)
