"""RandomResizedCrop's box as most scripts draw it, for sides whose library has none; no dependencies."""

from __future__ import annotations

import math
import random


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """(x, y, width, height): 8 to 100 % of the area, aspect 3/4 to 4/3, as torchvision's defaults."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def middle_box(width: int, height: int, share: float) -> tuple[int, int, int, int]:
    """The square in the middle whose side is this share of the shorter side."""
    side = round(min(width, height) * share)
    return (width - side) // 2, (height - side) // 2, side, side
