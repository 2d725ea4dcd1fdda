"""Render an encoded image by a plan.

The size of the image gives the plan, the plan gives the region to decode, and the plan is carried out on the decoded
region. The pixels are the same whether a part of the image or all of it was decoded. A JPEG is decoded at 1/2, 1/4 or
1/8 if the planned region is at least that many times its target in both directions, unless `exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import DEFAULT_RULES, Rules
from fastdata.codec.encoded import EncodedImage, Part, open_encoded
from fastdata.errors import OptionError
from fastdata.size import Size
from fastdata.transforms.engines import Region
from fastdata.transforms.plan import Box, Canvas, Plan, needed, reduction, stages
from fastdata.transforms.resample import ResampleRules, resample, takes_boxes

if TYPE_CHECKING:
    from fastdata.codec.info import Data
    from fastdata.transforms.pipeline import Pipeline

RGB = NDArray[np.uint8]


def render(
    data: Data,
    pipeline: Pipeline,
    numbers: Sequence[float] = (),
    *,
    out: RGB | None = None,
    exact: bool = False,
    rules: Rules = DEFAULT_RULES,
    notes: list[str] | None = None,
) -> RGB:
    """Decode what a pipeline's plan needs of an image, and carry the plan out.

    Args:
        data: the whole file, any bytes-like; never changed.
        pipeline: its geometric transforms make the plan.
        numbers: their random numbers, a row of `pipeline.numbers`.
        out: the array to write to: contiguous H x W x 3 uint8 of the plan's size. None makes a new array.
        exact: never decode a JPEG at a fraction of its size.
        rules: how images are decoded.
        notes: a line is appended for each repair and each report of a decoder.

    Returns:
        `out`, or a new array.

    Raises:
        DecodeError: the data cannot be decoded.
        OptionError: `out` has another shape than the plan gives.
    """
    return render_image(open_encoded(data, rules), pipeline, numbers, out=out, exact=exact, notes=notes)


def render_image(
    image: EncodedImage,
    pipeline: Pipeline,
    numbers: Sequence[float] = (),
    *,
    out: RGB | None = None,
    exact: bool = False,
    notes: list[str] | None = None,
) -> RGB:
    """`render` for an opened image."""
    size = image.size
    plan = pipeline.plan(size, numbers)
    if out is None and not plan.changes:
        part = image.decode(notes=notes)
        if part.size == size:
            return part.pixels
    else:
        region, scale = decoded_region(plan, exact=exact)
        part = image.decode(region, scale, notes=notes)
    if part.size != size:  # the header stated another size than the data have
        plan = pipeline.plan(part.size, numbers)
    return carry_out(plan, part, out)


def render_plan(image: EncodedImage, plan: Plan, *, exact: bool = False, notes: list[str] | None = None) -> RGB:
    """Carry out a plan on an opened image; the result is a new array."""
    region, scale = decoded_region(plan, exact=exact)
    return carry_out(plan, image.decode(region, scale, notes=notes))


def decoded_region(plan: Plan, *, exact: bool = False) -> tuple[Box, int]:
    """The region of an image to decode for a plan, and the scale to decode it at."""
    first = plan if plan.before is None else stages(plan, _source_box)[0]
    if 0 in first.content:
        return needed(first), 1
    return _source_box(first), 1 if exact else reduction(first)


def render_array(pixels: RGB, plan: Plan, out: RGB | None = None, *, resampling: ResampleRules | None = None) -> RGB:
    """Carry out a plan on a decoded image, which is not changed."""
    return carry_out(plan, Part(pixels, (0, 0), 1, Size(*pixels.shape[:2])), out, resampling)


def _source_box(plan: Plan) -> Box:
    """The box of the source to resample: what the result needs, or all if the engine cannot make a window of a part."""
    if plan.window is None or takes_boxes(plan.region, plan.size, plan.antialias):
        return needed(plan)
    return plan.box


def carry_out(plan: Plan, part: Part, out: RGB | None = None, resampling: ResampleRules | None = None) -> RGB:
    """Carry out a plan on decoded pixels that cover what it needs.

    Returns:
        `out`, or a new array.

    Raises:
        OptionError: `out` has another shape than the plan gives.
    """
    pixels, origin, scale, _ = part
    if plan.before is None:
        return _stage(pixels, origin, scale, plan, out, resampling)
    steps = stages(plan, _source_box)
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        pixels = _stage(pixels, origin, scale, step, out if last else None, resampling)
        if not last:
            x0, y0, _, _ = _source_box(steps[number + 1])
            origin, scale = (x0, y0), 1
    return pixels


def _stage(
    pixels: RGB,
    origin: tuple[float, float],
    scale: int,
    plan: Plan,
    out: RGB | None,
    resampling: ResampleRules | None,
) -> RGB:
    height, width = plan.out_size
    if out is None:
        out = np.empty((height, width, 3), np.uint8)
    elif out.shape != (height, width, 3) or out.dtype != np.uint8 or not out.flags.c_contiguous:
        raise OptionError(
            f"the plan gives {height} x {width} x 3 uint8 pixels; out must be a contiguous array of these, "
            f"not {out.dtype} {out.shape} with strides {out.strides}"
        )
    flips, content = (plan.flip_x, plan.flip_y), None
    if 0 not in plan.content:
        x, y = origin
        x0, y0, x1, y1 = plan.box
        region: Region = (x0 - x, y0 - y, x1 - x, y1 - y)
        if scale > 1:
            region = (x0 / scale - x, y0 / scale - y, x1 / scale - x, y1 / scale - y)
        target = out if plan.canvas is None else None
        content = resample(pixels, region, plan.size, plan.window, plan.antialias, target, resampling)
    if plan.canvas is not None:
        _draw_on_canvas(content, plan.canvas, flips, out)
    elif content is not None and flips in _FLIPS:
        cv2.flip(content, _FLIPS[flips], dst=out)  # maybe in place, which saves a copy
    elif content is not None and content is not out:
        out[...] = content
    return out


# (left to right, top to bottom) -> OpenCV's code.
_FLIPS = {(True, False): 1, (False, True): 0, (True, True): -1}


def _draw_on_canvas(content: RGB | None, canvas: Canvas, flips: tuple[bool, bool], out: RGB) -> None:
    """Lay the content on its canvas; None leaves the background alone."""
    if content is None:
        out[...] = canvas.fill
        return
    if flips in _FLIPS:
        content = np.asarray(cv2.flip(content, _FLIPS[flips]), np.uint8)
    height, width = content.shape[:2]
    right, bottom = canvas.size.width - canvas.x - width, canvas.size.height - canvas.y - height
    cv2.copyMakeBorder(content, canvas.y, bottom, canvas.x, right, cv2.BORDER_CONSTANT, out, canvas.fill)
