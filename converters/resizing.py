"""The resize options of a conversion as fastdata's own transforms, so that both give the same plan for an image."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from fastdata.errors import TooLargeError
from fastdata.transforms.geometry import CenterCrop, Geometric, Letterbox, Resize
from fastdata.transforms.plan import Plan

if TYPE_CHECKING:
    from fastdata.converters.options import RecodeOptions
    from fastdata.size import Size

# A reduced image stays at least twice as large as its target, so that the antialiased filter that follows has whole
# pixels to average and the scale is hardly seen in what is kept for good.
HEADROOM = 2


def resize_plan(size: Size, options: RecodeOptions) -> Plan:
    """The plan for an image of this size.

    `shorter` and `longer` leave a smaller image as it is, and `pad` centres it unscaled, unless `upscale`.

    Raises:
        TooLargeError: the resized image would have more pixels than allowed.
    """
    plan, side = Plan.whole(size), options.resize
    if side is None:
        return plan
    known = min(size) if options.resize_mode == "shorter" else max(size)
    if known < side and not options.upscale and options.resize_mode in ("shorter", "longer"):
        return plan
    if known < side and not options.upscale and options.resize_mode == "pad":
        return plan.pad((side, side), (side - size.width) // 2, (side - size.height) // 2, options.pad_color)
    for transform in transforms_for(options):
        plan = transform.apply_to(plan, ())
    height, width = plan.size
    if plan.window is None and height * width > max(options.max_pixels, size.height * size.width):
        raise TooLargeError(
            f"{size.width} x {size.height} would become {width} x {height}: more than {options.max_pixels:,} pixels; "
            "raise --max-pixels to allow it"
        )
    return plan


@functools.lru_cache(maxsize=8)
def transforms_for(options: RecodeOptions) -> tuple[Geometric, ...]:
    """The transforms that these options stand for."""
    side = options.resize
    if side is None:
        return ()
    modes: dict[str, tuple[Geometric, ...]] = {
        "shorter": (Resize(side),),
        "longer": (Resize(None, max_size=side),),
        "exact": (Resize((side, side)),),
        "crop": (Resize(side), CenterCrop(side)),
        "pad": (Letterbox(side, fill=options.pad_color),),
    }
    return modes[options.resize_mode]
