"""Resizing RGB: one filter, in the fastest engine that is installed.

Flows in: H x W x 3 uint8 RGB and the size wanted. Flows out: exactly that size, contiguous, writable, never the input.

Where a side shrinks the filter is antialiased bilinear, as Pillow and torchvision have it: cykooz-resizer (the Rust
crate fast_image_resize) within one level of Pillow and several times faster, or Pillow itself where that wheel is not
installed. Where neither side shrinks, the same filter is plain linear interpolation, and OpenCV does it. Neither
engine is imported before the first picture that shrinks.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError

RGB = NDArray[np.uint8]
Engine = Callable[[RGB, int, int], RGB]


def resize(rgb: RGB, width: int, height: int) -> RGB:
    """Resizes to width x height, whatever the aspect.

    Args:
        rgb: H x W x 3 uint8.
        width: wanted, at least 1.
        height: wanted, at least 1.

    Returns:
        A new array.

    Raises:
        OptionError: a side below 1, or not such an array.
    """
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise OptionError(f"resize takes an H x W x 3 array of uint8 that is not empty, not {rgb.dtype} {rgb.shape}")
    if width < 1 or height < 1:
        raise OptionError(f"a picture needs sides of at least 1, not {width} x {height}")
    old_height, old_width = rgb.shape[:2]
    if (width, height) == (old_width, old_height):
        return rgb.copy()
    if width >= old_width and height >= old_height:
        return np.asarray(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
    return _engine()[1](rgb, width, height)


def engine() -> str:
    """The engine that shrinks, with its version: `cykooz-resizer 4.0.1` or `pillow 13.0.0`."""
    return _engine()[0]


@functools.cache
def _engine() -> tuple[str, Engine]:
    """The name and the function of the best engine that can be imported."""
    try:
        return _cykooz()
    except ImportError:
        return _pillow()


def _cykooz() -> tuple[str, Engine]:
    from importlib.metadata import version

    from cykooz_resizer import FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer

    options = ResizeOptions(resize_alg=ResizeAlg.convolution(FilterType.bilinear), use_alpha=False)
    own = threading.local()  # a resizer keeps buffers, and refuses a second thread at the same time

    def shrink(rgb: RGB, width: int, height: int) -> RGB:
        if not hasattr(own, "resizer"):
            own.resizer = Resizer()
        source = ImageData(rgb.shape[1], rgb.shape[0], PixelType.U8x3, rgb.tobytes())
        target = ImageData(width, height, PixelType.U8x3)
        own.resizer.resize(source, target, options)
        # A bytearray, because the buffer that comes back is bytes and the caller's array must be writable.
        return np.frombuffer(bytearray(target.get_buffer()), np.uint8).reshape(height, width, 3)

    return f"cykooz-resizer {version('cykooz-resizer')}", shrink


def _pillow() -> tuple[str, Engine]:
    import PIL
    from PIL import Image

    def shrink(rgb: RGB, width: int, height: int) -> RGB:
        picture = Image.fromarray(np.ascontiguousarray(rgb))
        return np.array(picture.resize((width, height), Image.Resampling.BILINEAR))

    return f"pillow {PIL.__version__}", shrink
