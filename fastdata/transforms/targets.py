"""Carry out a plan on the mask (nearest pixel) and the boxes of an image.

Both are in pixels of the upright image before and of the planned image after, so image, mask and boxes agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdata.errors import OptionError
from fastdata.transforms.plan import Plan


def apply_to_mask(plan: Plan, mask: NDArray[np.generic], *, fill: int = 0) -> NDArray[np.generic]:
    """The mask of the planned image; each pixel is the source pixel whose centre is nearest.

    Args:
        plan: the plan of the image.
        mask: H x W, or H x W x channels, of any dtype, as large as the upright image.
        fill: the value where the image is padded; 255 is a usual value for "ignore".

    Raises:
        OptionError: the mask has another size than the image.
    """
    height, width = plan.first.source
    if mask.shape[:2] != (height, width):
        raise OptionError(f"the mask is {mask.shape[1]} x {mask.shape[0]}, its image {width} x {height}")
    for stage in _chain(plan):
        mask = _mask_stage(stage, mask, fill)
    return np.ascontiguousarray(mask)


def apply_to_boxes(plan: Plan, boxes: ArrayLike) -> NDArray[np.float64]:
    """The boxes of the planned image, clipped to it.

    As in torchvision, every box keeps its row, so that boxes and labels still match; a box that lies outside has no
    area. To drop those: `kept = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)`.

    Args:
        plan: the plan of the image.
        boxes: N x 4, (x0, y0, x1, y1) in pixels of the upright image.

    Raises:
        OptionError: `boxes` is not such an array.
    """
    given = np.array(boxes, np.float64)  # a copy: the caller's boxes are not changed
    if given.size == 0:
        return np.zeros((0, 4))
    if given.ndim != 2 or given.shape[1] != 4:
        raise OptionError(f"boxes must be N x 4, (x0, y0, x1, y1), not of shape {given.shape}")
    for stage in _chain(plan):
        low, high = (_box_axis(stage, given, axis) for axis in (0, 1))
        given = np.stack([low[0], high[0], low[1], high[1]], axis=1)
    return given


def _chain(plan: Plan) -> list[Plan]:
    """The plan and all before it, first to last."""
    chain = [plan]
    while (before := chain[-1].before) is not None:
        chain.append(before)
    return chain[::-1]


def _mask_stage(plan: Plan, mask: NDArray[np.generic], fill: int) -> NDArray[np.generic]:
    rows, columns = _nearest(plan, 1), _nearest(plan, 0)
    content = mask[rows[:, np.newaxis], columns]
    if plan.canvas is None:
        return content
    (height, width), x, y = plan.canvas.size, plan.canvas.x, plan.canvas.y
    out = np.full((height, width, *mask.shape[2:]), fill, mask.dtype)
    out[y : y + len(rows), x : x + len(columns)] = content
    return out


def _nearest(plan: Plan, axis: int) -> NDArray[np.int64]:
    """The source row (axis 1) or column (axis 0) of each row or column of the content."""
    start, stop, size = plan.box[axis], plan.box[axis + 2], plan.size[1 - axis]
    first, last = (0, size) if plan.window is None else (plan.window[axis], plan.window[axis + 2])
    wanted = np.arange(first, last, dtype=np.int64)
    # The centre of pixel i is i + 1/2; in whole numbers, so that no rounding can lead to a neighbour.
    nearest = start + ((2 * wanted + 1) * (stop - start)) // (2 * max(size, 1))
    return nearest[::-1] if (plan.flip_x, plan.flip_y)[axis] else nearest


def _box_axis(plan: Plan, boxes: NDArray[np.float64], axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both ends of all boxes along x (axis 0) or y (axis 1), after a stage."""
    start, stop, size = plan.box[axis], plan.box[axis + 2], plan.size[1 - axis]
    first, last = (0, size) if plan.window is None else (plan.window[axis], plan.window[axis + 2])
    count = last - first
    low, high = (
        np.clip((boxes[:, axis + end] - start) * (size / max(stop - start, 1)) - first, 0, count) for end in (0, 2)
    )
    if (plan.flip_x, plan.flip_y)[axis]:
        low, high = count - high, count - low
    if plan.canvas is not None:
        offset = (plan.canvas.x, plan.canvas.y)[axis]
        low, high = low + offset, high + offset
    return low, high
