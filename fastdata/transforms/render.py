"""Render: encoded bytes and a plan flow in, exactly the planned pixels flow out, into a given place.

Promises: only what the plan needs is decoded (JPEGs with restart markers and raw pixels), or the whole picture where
its kind allows nothing else, and the pixels are the same either way. The orientation is applied once. A JPEG is decoded
at 1/2, 1/4 or 1/8 where the planned region is at least that many times its target in both directions, unless `exact`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec import jpeg
from fastdata.codec.cropindex import Cuttable, cut_loaded, load
from fastdata.codec.decode import Rules, decode
from fastdata.codec.engines import Region
from fastdata.codec.headers.simple import npy_layout
from fastdata.codec.info import MAX_PIXELS
from fastdata.codec.sniff import probe
from fastdata.errors import OptionError
from fastdata.size import Size
from fastdata.transforms.engines import resample, takes_boxes
from fastdata.transforms.plan import Box, Canvas, Plan, needed, stages

if TYPE_CHECKING:
    from fastdata.codec.info import Data

RGB = NDArray[np.uint8]
PlanOf = Callable[[Size], Plan]
Origin = tuple[float, float]

_own = threading.local()
# Crops of up to a megapixel; pages that no crop reaches are never touched, so they take no memory.
_SCRATCH_BYTES = 3 << 20
# Orientations that mirror the stored axis which becomes the upright x or y.
_MIRRORED_X, _MIRRORED_Y = frozenset({2, 3, 6, 7}), frozenset({3, 4, 7, 8})


_RULES = Rules()


def render(
    data: Data,
    plan_of: PlanOf,
    *,
    out: RGB | None = None,
    exact: bool = False,
    rules: Rules = _RULES,
    notes: list[str] | None = None,
) -> RGB:
    """Decode what a plan needs and carry it out.

    Args:
        data: the whole file, any bytes-like; never changed.
        plan_of: the plan for an upright image of this size.
        out: where the pixels go: contiguous H x W x 3 uint8 of the plan's size. None makes a new array.
        exact: never decode a JPEG at a fraction of its size.
        rules: how pictures are decoded.
        notes: takes what `decode` has to say of the data, where somebody wants to report it.

    Returns:
        `out`, or a new array.

    Raises:
        DecodeError: the data give no picture.
        OptionError: `out` has another shape than the plan gives.
    """
    begun = begin(data, plan_of, out=out, exact=exact, rules=rules, notes=notes)
    if not isinstance(begun, Begun):
        return begun
    done = begun.finish()
    return _whole(data, plan_of, out, exact, rules, notes) if done is None else done


class Begun(NamedTuple):
    """A picture of which the needed part is cut out, but not decoded yet. The data that it is of are needed no more.

    Attributes:
        jpeg: a JPEG of the needed part.
        size: its (width, height), as the decoder takes it.
        origin: where that begins in the whole picture.
        scale: it is to be decoded at 1/scale.
        plan: the plan.
        out: where the pixels go.
    """

    jpeg: Data
    size: tuple[int, int]
    origin: tuple[int, int]
    scale: int
    plan: Plan
    out: RGB | None

    def finish(self) -> RGB | None:
        """Decode, and carry out the plan; None where the picture must be rendered from its data after all."""
        pixels = jpeg.pixels(self.jpeg, self.scale, self.size, _scratch())
        if pixels is None:
            return None
        x, y = self.origin
        return render_part(pixels, (x // self.scale, y // self.scale), self.scale, self.plan, self.out)


def begin(
    data: Data,
    plan_of: PlanOf,
    *,
    out: RGB | None = None,
    exact: bool = False,
    rules: Rules = _RULES,
    notes: list[str] | None = None,
) -> Begun | RGB:
    """The first half of `render`, for pictures of which a part can be cut out; all of it for others.

    Many begun and then finished are quicker than one after the other: each half finds its code and tables in the cache.
    """
    if data[:2] == b"\xff\xd8":
        found = load(data)
        if found is not None:
            begun = _cut(found, plan_of, out, exact, rules)
            if begun is not None:
                return begun
    elif data[:6] == b"\x93NUMPY":
        pixels = raw_view(data, rules.max_pixels)
        if pixels is not None:
            plan = plan_of(Size(*pixels.shape[:2]))
            return render_part(pixels, (0, 0), 1, plan, out)
    return _whole(data, plan_of, out, exact, rules, notes)


def render_array(pixels: RGB, plan: Plan, out: RGB | None = None) -> RGB:
    """A plan carried out on a decoded picture, which stays as it is."""
    return render_part(pixels, (0, 0), 1, plan, out)


def _cut(found: Cuttable, plan_of: PlanOf, out: RGB | None, exact: bool, rules: Rules) -> Begun | RGB | None:
    """By the crop index; None where the picture must be decoded whole."""
    header = found.header
    width, height = header.width, header.height
    if not header.plain or width * height > rules.max_pixels:
        return None
    plan = plan_of(Size(height, width))
    if out is None and not plan.changes:
        return None  # decoded whole anyway, and nothing is to be copied then
    first = plan if plan.before is None else stages(plan, _wanted)[0]
    if 0 in first.content:
        return render_part(np.empty((0, 0, 3), np.uint8), (0, 0), 1, plan, out)
    scale = 1 if exact else dct_scale(first)
    x0, y0, x1, y1 = _wanted(first)
    if scale > 1:  # whole pixels of the reduced picture
        x0, y0 = x0 - x0 % scale, y0 - y0 % scale
        x1, y1 = min(-(-x1 // scale) * scale, width), min(-(-y1 // scale) * scale, height)
    small, origin, size = cut_loaded(found, (x0, y0, x1, y1), scale)
    # What needs all of it is the data themselves, which may be gone when this is finished.
    return Begun(bytes(small) if small is found.jpeg else small, size, origin, scale, plan, out)


def _scratch() -> RGB:
    """Memory of this thread for the pixels between decoding and resizing: fresh pages for each would cost time."""
    if not hasattr(_own, "scratch"):
        _own.scratch = np.empty(_SCRATCH_BYTES, np.uint8)
    return _own.scratch  # type: ignore[no-any-return]


def dct_scale(plan: Plan) -> int:
    """The largest of 8, 4, 2 by which the region can be decoded smaller and still be as large as its target."""
    (height, width), (x0, y0, x1, y1) = plan.size, plan.box
    if x1 - x0 < 2 * width or y1 - y0 < 2 * height:
        return 1
    share = min((x1 - x0) // width, (y1 - y0) // height)
    return 8 if share >= 8 else 4 if share >= 4 else 2


def _wanted(plan: Plan) -> Box:
    """What is to be decoded: what is needed, or the whole region where a window cannot be made of a part."""
    if plan.window is None or takes_boxes(plan.region, plan.size, plan.antialias):
        return needed(plan)
    return plan.box


@functools.lru_cache(maxsize=256)
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, int]:
    return npy_layout(header)


def raw_view(data: Data, max_pixels: int = MAX_PIXELS) -> RGB | None:
    """Raw RGB pixels where they lie, nothing copied; None where they need more than that (gray, alpha, cut, ...)."""
    if len(data) < 128 or data[6:7] != b"\x01":  # the version that every such picture has
        return None
    shape, fortran, offset = _layout(bytes(data[: 10 + int.from_bytes(data[8:10], "little")]))
    if fortran or len(shape) != 3 or shape[2] != 3 or shape[0] * shape[1] > max_pixels:
        return None
    count = shape[0] * shape[1] * 3
    if offset + count > len(data):
        return None
    return np.frombuffer(data, np.uint8, count, offset).reshape(shape)


def _whole(data: Data, plan_of: PlanOf, out: RGB | None, exact: bool, rules: Rules, notes: list[str] | None) -> RGB:
    """Everything else: decode the whole picture."""
    info = probe(data)
    plan, scale = plan_of(info.upright_size), 1
    if info.format == "jpg" and not exact:
        first = plan if plan.before is None else stages(plan, _wanted)[0]
        scale = 1 if 0 in first.content else dct_scale(first)
    pixels = decode(
        data, alpha=rules.alpha, max_pixels=rules.max_pixels, keep_damaged=rules.keep_damaged, reduce=scale, info=info,
        notes=notes,
    )  # fmt: skip
    height, width = info.upright_size
    size = Size(*pixels.shape[:2])
    if size == (height, width):
        return pixels if out is None and not plan.changes else render_part(pixels, (0, 0), 1, plan, out)
    if size != (-(-height // scale), -(-width // scale)):  # the header told another size than the data have
        return render_part(pixels, (0, 0), 1, plan_of(size), out)
    # Reduced pixels are counted from the stored corner, so what is mirrored begins within one.
    x = width / scale - size.width if info.orientation in _MIRRORED_X else 0
    y = height / scale - size.height if info.orientation in _MIRRORED_Y else 0
    return render_part(pixels, (x, y), scale, plan, out)


def render_part(pixels: RGB, origin: Origin, scale: int, plan: Plan, out: RGB | None) -> RGB:
    """Carry out a plan on pixels that begin at `origin` of a picture at 1/scale (in pixels of that)."""
    if plan.before is None:
        return _stage(pixels, origin, scale, plan, out)
    steps = stages(plan, _wanted)
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        pixels = _stage(pixels, origin, scale, step, out if last else None)
        if not last:
            x0, y0, _, _ = _wanted(steps[number + 1])
            origin, scale = (x0, y0), 1
    return pixels


def _stage(pixels: RGB, origin: Origin, scale: int, plan: Plan, out: RGB | None) -> RGB:
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
        place = out if plan.canvas is None else None
        content = resample(pixels, region, plan.size, plan.window, plan.antialias, place)
    if plan.canvas is not None:
        _lay(content, plan.canvas, flips, out)
    elif content is not None and flips in _FLIPS:
        cv2.flip(content, _FLIPS[flips], dst=out)  # maybe in place, which spares a copy
    elif content is not None and content is not out:
        out[...] = content
    return out


# OpenCV's codes for (left to right, top to bottom).
_FLIPS = {(True, False): 1, (False, True): 0, (True, True): -1}


def _lay(content: RGB | None, canvas: Canvas, flips: tuple[bool, bool], out: RGB) -> None:
    """Put the content on its canvas."""
    if content is None:
        out[...] = canvas.fill
        return
    if flips in _FLIPS:
        content = np.asarray(cv2.flip(content, _FLIPS[flips]), np.uint8)
    height, width = content.shape[:2]
    right, bottom = canvas.size.width - canvas.x - width, canvas.size.height - canvas.y - height
    cv2.copyMakeBorder(content, canvas.y, bottom, canvas.x, right, cv2.BORDER_CONSTANT, out, canvas.fill)
