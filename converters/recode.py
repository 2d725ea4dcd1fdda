"""Recode: one file's bytes and the options flow in, one record's picture flows out. Runs in the workers.

Promises: what comes out was decoded whole first, also where the bytes pass through unchanged; a file that gives no
picture is a reason in words, never an exception; the same bytes and options give the same result.

The codec is imported where it is used: the parent process knows `Outcome` and needs no OpenCV for that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.converters.geometry import ResizePlan, plan_resize, reduction
from fastdata.converters.options import ENCODINGS, RecodeOptions
from fastdata.errors import CutError, DecodeError, TooLargeError
from fastdata.record import IMAGE_FIELDS

if TYPE_CHECKING:
    from fastdata.codec.sniff import ImageInfo

RGB = NDArray[np.uint8]

# What `keep` writes in its own format where the picture must change; everything else becomes png, which loses nothing.
_KEPT_FORMATS = frozenset(("jpg", "png", "webp"))
_LOSSY_FIELDS = frozenset(("jpg", "webp"))
# The longest side that the format can state.
_LONGEST = {"jpg": 65_500, "webp": 16_383}
# No picture within max_pixels needs more than this for a pixel (four channels of 64 bits), and headers need little:
# a longer file is refused before it is read.
_MOST_BYTES_PER_PIXEL = 32
_HEADER_BYTES = 64 << 20


class Outcome(NamedTuple):
    """What became of one file, beside its bytes. `reason` is "" unless the file was rejected."""

    field: str = ""
    bytes_in: int = 0
    warnings: tuple[str, ...] = ()
    became_lossy: str = ""
    engine: str = ""
    reason: str = ""


class Recoded(NamedTuple):
    """One record's picture. `became_lossy` is the source's format where it lost its losslessness, else ""."""

    field: str
    data: bytes
    warnings: tuple[str, ...] = ()
    became_lossy: str = ""
    engine: str = ""


def file_recoder(root: str, options: RecodeOptions) -> Callable[[str], tuple[Outcome, bytes]]:
    """What a worker calls on each path below `root`. Sets this process up for it: OpenCV without threads."""
    import cv2

    from fastdata.formats.folder import read_file

    cv2.setNumThreads(1)
    longest = _MOST_BYTES_PER_PIXEL * options.max_pixels + _HEADER_BYTES

    def recode_file(path: str) -> tuple[Outcome, bytes]:
        full = os.path.join(root, path)
        size = 0
        try:
            size = os.stat(full).st_size
            if size > longest:
                raise TooLargeError(f"the file has {size:,} bytes, more than any picture of {options.max_pixels:,} pixels")
            data = read_file(full)
            size = len(data)
            done = recode(data, options)
        except DecodeError as error:
            return Outcome(bytes_in=size, reason=str(error)), b""
        except MemoryError:
            return Outcome(bytes_in=size, reason="not enough memory to decode it; try fewer --workers"), b""
        except OSError as error:
            return Outcome(bytes_in=size, reason=f"cannot be read: {error.strerror or error}"), b""
        return Outcome(done.field, size, done.warnings, done.became_lossy, done.engine), done.data

    return recode_file


def recode(data: bytes, options: RecodeOptions) -> Recoded:
    """One file's bytes as the picture of a record.

    Args:
        data: the whole file.
        options: what is wanted.

    Returns:
        The field's name, its bytes, and what there is to say about it.

    Raises:
        DecodeError: the bytes give no picture, or a larger one than allowed.
    """
    from fastdata.codec.encode import encode
    from fastdata.codec.sniff import probe

    info = probe(data)
    width, height = info.upright_size
    plan = _plan(width, height, options)
    rgb, damage = _decoded(data, options, info, reduction(width, height, plan) if plan and info.format == "jpg" else 1)
    if options.encode == "keep" and plan is None and not damage and info.format in IMAGE_FIELDS:
        return Recoded(info.format, data)
    if plan is None or (rgb.shape[1], rgb.shape[0]) == (width, height):
        plan = plan or _plan(rgb.shape[1], rgb.shape[0], options)
    field = ENCODINGS[options.encode] or (info.format if info.format in _KEPT_FORMATS else "png")
    rgb, engine = _shaped(rgb, plan, options)
    _check_side(rgb, field)
    lossy = info.format if field in _LOSSY_FIELDS and info.lossless else ""
    return Recoded(field, encode(rgb, field, quality=options.quality), damage, lossy, engine)


def _plan(width: int, height: int, options: RecodeOptions) -> ResizePlan | None:
    if options.resize is None:
        return None
    plan = plan_resize(width, height, options.resize, options.resize_mode, upscale=options.upscale)
    if plan is not None and plan.width * plan.height > max(options.max_pixels, width * height):
        raise TooLargeError(
            f"{width} x {height} would become {plan.width} x {plan.height}: more than {options.max_pixels:,} pixels; "
            "raise --max-pixels to allow it"
        )
    return plan


def _decoded(data: bytes, options: RecodeOptions, info: ImageInfo, reduce: int) -> tuple[RGB, tuple[str, ...]]:
    """The picture, and what is wrong with it where damaged pictures are wanted."""
    from fastdata.codec.decode import decode

    rule = {"alpha": options.alpha, "max_pixels": options.max_pixels, "reduce": reduce, "info": info}
    try:
        return decode(data, **rule), ()
    except CutError as error:
        if not options.keep_damaged:
            raise
        return decode(data, keep_damaged=True, **rule), (f"damaged, kept, encoded anew: {error}",)


def _shaped(rgb: RGB, plan: ResizePlan | None, options: RecodeOptions) -> tuple[RGB, str]:
    """The picture as planned, and the engine that resized it ("" where nothing was)."""
    if plan is None:
        return rgb, ""
    engine = ""
    if rgb.shape[:2] != (plan.height, plan.width):
        from fastdata.codec import resize

        rgb, engine = resize.resize(rgb, plan.width, plan.height), resize.engine()
    left, top = plan.left, plan.top
    if plan.crops:
        rgb = rgb[top : top + plan.out_height, left : left + plan.out_width]
    elif plan.pads:
        canvas = np.full((plan.out_height, plan.out_width, 3), options.pad_color, np.uint8)
        canvas[top : top + plan.height, left : left + plan.width] = rgb
        rgb = canvas
    return np.ascontiguousarray(rgb), engine


def _check_side(rgb: RGB, field: str) -> None:
    side = max(rgb.shape[:2])
    if side > _LONGEST.get(field, side):
        raise TooLargeError(
            f"{rgb.shape[1]} x {rgb.shape[0]} does not fit into {field}, whose sides end at {_LONGEST[field]:,}; "
            "use --resize or --encode png"
        )

