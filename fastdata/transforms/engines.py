"""Engines that shrink with an antialiased bilinear filter, as in Pillow and torchvision.

All are within 1 level of each other and of Pillow. `best_engine` returns the first that can be loaded:

- cykooz-resizer: needs no torch, so workers stay small;
- torch's uint8 kernel, which is as fast and usually installed, but the process must import torch;
- Pillow, for platforms on which neither can be loaded.
"""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdata.size import Size

RGB = NDArray[np.uint8]
Region = tuple[float, float, float, float]


class Shrink(Protocol):
    """The signature of every engine."""

    def __call__(self, pixels: RGB, size: Size, region: Region | None = None, out: RGB | None = None) -> RGB:
        """Resize.

        Args:
            pixels: in any layout.
            size: of the result.
            region: (x0, y0, x1, y1) within `pixels`; the filter reaches beyond it where there are pixels.
            out: a contiguous array of the result's shape that the engine may write to.

        Returns:
            `out`, or an array of its own, which may be read-only.
        """


class Engine(NamedTuple):
    """An engine: its name with its version, whether it takes regions, and the function."""

    name: str
    regions: bool
    shrink: Shrink


@functools.cache
def best_engine(*, torch: bool = True) -> Engine:
    """The best engine that can be loaded.

    Args:
        torch: whether this process may import torch. Pass False if it must not, as in the workers of a conversion, and
            if the pixels must not depend on whether torch is installed.
    """
    for load in (cykooz, pytorch) if torch else (cykooz,):
        try:
            return load()
        except ImportError:
            continue
    return pillow()


def engine_name() -> str:
    """The engine that shrinks images for training, with its version."""
    return best_engine().name


def cykooz() -> Engine:
    """cykooz-resizer (the Rust crate fast_image_resize): fast, small, and takes regions."""
    from importlib.metadata import version

    from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer

    bilinear, kind = ResizeAlg.convolution(FilterType.bilinear), PixelType.U8x3
    plain = ResizeOptions(resize_alg=bilinear, use_alpha=False)
    thread = threading.local()  # a resizer has buffers, and refuses a second thread at the same time

    def tools(size: Size) -> tuple[Any, Any]:
        if not hasattr(thread, "resizer"):
            thread.resizer, thread.size = Resizer(), Size(0, 0)
        if thread.size != size:  # one target is reused: most runs have one size
            thread.size, thread.target = size, ImageData(size.width, size.height, kind)
        return thread.resizer, thread.target

    def shrink(pixels: RGB, size: Size, region: Region | None = None, out: RGB | None = None) -> RGB:  # noqa: ARG001
        resizer, target = tools(size)
        options = plain
        if region is not None:
            box = CropBox(region[0], region[1], region[2] - region[0], region[3] - region[1])
            options = ResizeOptions(resize_alg=bilinear, use_alpha=False, crop_box=box)
        source = ImageData(pixels.shape[1], pixels.shape[0], kind, pixels.tobytes())
        resizer.resize(source, target, options)
        return np.frombuffer(target.get_buffer(), np.uint8).reshape(size.height, size.width, 3)

    return Engine(f"cykooz-resizer {version('cykooz-resizer')}", True, shrink)


def pytorch() -> Engine:
    """torch's uint8 kernel: as fast, but the process must import torch; takes no regions."""
    torch = importlib.import_module("torch")  # imported only if this engine is used
    kernel = torch.ops.aten._upsample_bilinear2d_aa.out

    def shrink(pixels: RGB, size: Size, region: Region | None = None, out: RGB | None = None) -> RGB:  # noqa: ARG001
        if not (pixels.flags.c_contiguous and pixels.flags.writeable):  # torch warns of arrays that it must not write
            pixels = pixels.copy()
        if out is None:
            out = np.empty((*size, 3), np.uint8)
        source, target = (torch.from_numpy(array)[None].permute(0, 3, 1, 2) for array in (pixels, out))
        kernel(source, [*size], False, None, None, out=target)
        return out

    return Engine(f"torch {torch.__version__}", False, shrink)


def pillow() -> Engine:
    """Pillow: always installed, several times slower; takes regions."""
    import PIL
    from PIL import Image

    def shrink(pixels: RGB, size: Size, region: Region | None = None, out: RGB | None = None) -> RGB:  # noqa: ARG001
        image = Image.fromarray(np.ascontiguousarray(pixels))
        return np.asarray(image.resize((size.width, size.height), Image.Resampling.BILINEAR, box=region))

    return Engine(f"pillow {PIL.__version__}", True, shrink)
