"""The geometric transforms: each maps a plan and a few random numbers to the next plan.

They take torchvision's parameters and are frozen and picklable. `apply_to(plan, numbers)` takes `draws` numbers in
[0, 1) and touches no pixel; ranges, rounding and fallbacks are torchvision v2's. Called with an image, a transform
draws its numbers from Python's `random` and returns the pixels, so that it also works in other chains of transforms.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastdata import checks
from fastdata.errors import OptionError
from fastdata.seeding import draw
from fastdata.size import Size
from fastdata.transforms.plan import Plan
from fastdata.transforms.sizes import fitting, longer, shorter

# torchvision's number of tries at a crop of random area and aspect that fits into the image.
_TRIES = 10


class Geometric(ABC):
    """Base class of the geometric transforms."""

    draws: ClassVar[int] = 0
    """How many numbers `apply_to` takes."""

    @abstractmethod
    def apply_to(self, plan: Plan, numbers: Sequence[float], /) -> Plan:
        """Add this transform to the plan."""

    @abstractmethod
    def size_after(self, size: Size | None, /) -> Size | None:
        """The size of the result for a source of this size (None: unknown); None if it depends on an unknown size."""

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Transform an H x W x 3 uint8 image; the result is a new array.

        Raises:
            OptionError: `image` is not such an array.
        """
        from fastdata.transforms.render import render_array  # which needs OpenCV; plans do not

        name = type(self).__name__
        hint = f"; put it in front of transforms that make tensors: transform=[{name}(...), the others]"
        checks.image(name, image, hint)
        plan = Plan.whole(image.shape[:2])
        return render_array(image, self.apply_to(plan, [random.random() for _ in range(self.draws)]))


@dataclass(frozen=True)
class RandomResizedCrop(Geometric):
    """Crop a random area of random aspect at a random position, and resize it.

    Args:
        size: of the result, an int (square) or (height, width).
        scale: bounds of the crop's share of the image's area.
        ratio: bounds of its width / height.
        antialias: shrink with an antialiasing filter, as torchvision does by default; False is faster and aliases.
        interpolation: "bilinear", or torchvision's name of it; there is no other.
    """

    size: Any
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    antialias: bool = True
    interpolation: Any = field(default="bilinear", repr=False, compare=False)
    _log_ratio: tuple[float, float] = field(init=False, repr=False, compare=False, default=(0.0, 0.0))

    # Two for the first try's area and aspect, two for the position, and one that seeds further tries, which are rare.
    draws: ClassVar[int] = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checks.size("RandomResizedCrop: size", self.size))
        object.__setattr__(self, "scale", checks.interval("RandomResizedCrop: scale", self.scale, zero=True))
        object.__setattr__(self, "ratio", checks.interval("RandomResizedCrop: ratio", self.ratio))
        object.__setattr__(self, "_log_ratio", (math.log(self.ratio[0]), math.log(self.ratio[1])))
        checks.flag("RandomResizedCrop: antialias", self.antialias)
        checks.bilinear("RandomResizedCrop: interpolation", self.interpolation)

    def apply_to(self, plan: Plan, numbers: Sequence[float], /) -> Plan:
        source = plan.out_size
        height, width = self._crop_size(source, numbers)
        if width:
            x = int(numbers[3] * (source.width - width + 1))
            y = int(numbers[2] * (source.height - height + 1))
        else:
            height, width = self._fallback(source)
            x, y = (source.width - width) // 2, (source.height - height) // 2
        return plan.crop((x, y, x + width, y + height)).resize(self.size, antialias=self.antialias)

    def _crop_size(self, source: Size, numbers: Sequence[float]) -> tuple[int, int]:
        """(height, width) of the first try that fits, (0, 0) if none does."""
        full_height, full_width = source
        area = full_height * full_width
        (least, most), (low, high) = self.scale, self._log_ratio
        share, aspect = numbers[0], numbers[1]
        for number in range(_TRIES):
            if number:
                more = int(numbers[4] * 2**53)  # all the bits of a draw, so distinct ones are distinct keys
                share, aspect = draw(more, 2 * number), draw(more, 2 * number + 1)
            target = area * (least + share * (most - least))
            stretch = math.exp(low + aspect * (high - low))
            width, height = round(math.sqrt(target * stretch)), round(math.sqrt(target / stretch))
            if 0 < width <= full_width and 0 < height <= full_height:
                return height, width
        return 0, 0

    def _fallback(self, source: Size) -> tuple[int, int]:
        """(height, width) of the largest central crop whose aspect is within bounds."""
        height, width = source
        aspect = width / height
        if aspect < self.ratio[0]:
            return max(1, min(round(width / self.ratio[0]), height)), width
        if aspect > self.ratio[1]:
            return height, max(1, min(round(height * self.ratio[1]), width))
        return source

    def size_after(self, _size: Size | None, /) -> Size | None:
        return self.size  # type: ignore[no-any-return]


@dataclass(frozen=True)
class CenterCrop(Geometric):
    """Crop the centre; a smaller image is padded with black.

    Args:
        size: of the result, an int (square) or (height, width).
    """

    size: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checks.size("CenterCrop: size", self.size))

    def apply_to(self, plan: Plan, _numbers: Sequence[float], /) -> Plan:
        height, width = self.size
        old_height, old_width = plan.out_size
        if width > old_width or height > old_height:
            padded = Size(max(height, old_height), max(width, old_width))
            plan = plan.pad(padded, (padded.width - old_width) // 2, (padded.height - old_height) // 2, (0, 0, 0))
            old_height, old_width = padded
        if (height, width) == (old_height, old_width):
            return plan
        x, y = round((old_width - width) / 2), round((old_height - height) / 2)  # to even, as torchvision rounds
        return plan.crop((x, y, x + width, y + height))

    def size_after(self, _size: Size | None, /) -> Size | None:
        return self.size  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Resize(Geometric):
    """Resize. As in torchvision, an int is the length of the shorter side, (height, width) is exact.

    Args:
        size: an int, (height, width), or None: the longer side becomes `max_size`.
        max_size: if `size` is an int, the upper bound of the longer side; if `size` is None, its length.
        antialias: shrink with an antialiasing filter.
        interpolation: "bilinear", or torchvision's name of it; there is no other.
    """

    size: Any
    max_size: int | None = None
    antialias: bool = True
    interpolation: Any = field(default="bilinear", repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.size is None:
            object.__setattr__(self, "max_size", checks.side("Resize: max_size (size is None)", self.max_size))
        elif isinstance(self.size, Sequence) and not isinstance(self.size, str) and len(self.size) == 2:
            object.__setattr__(self, "size", checks.size("Resize: size", self.size))
            if self.max_size is not None:
                raise OptionError(f"Resize: max_size={self.max_size!r} needs a size that is one int, not {self.size!r}")
        else:
            object.__setattr__(self, "size", checks.side("Resize: size", self.size, alternative="(height, width)"))
            if self.max_size is not None:
                checks.side("Resize: max_size", self.max_size, self.size + 1)
        checks.flag("Resize: antialias", self.antialias)
        checks.bilinear("Resize: interpolation", self.interpolation)

    def apply_to(self, plan: Plan, _numbers: Sequence[float], /) -> Plan:
        exact = self.size_after(plan.out_size)
        return plan if exact is None else plan.resize(exact, antialias=self.antialias)

    def size_after(self, size: Size | None, /) -> Size | None:
        if isinstance(self.size, Size):
            return self.size
        if size is None:
            return None
        return longer(size, self.max_size or 0) if self.size is None else shorter(size, self.size, self.max_size)


@dataclass(frozen=True)
class RandomHorizontalFlip(Geometric):
    """Mirror left to right with probability `p`."""

    p: float = 0.5

    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        checks.number("RandomHorizontalFlip: p", self.p, 0, 1)

    def apply_to(self, plan: Plan, numbers: Sequence[float], /) -> Plan:
        return plan.flip(x=True) if numbers[0] < self.p else plan

    def size_after(self, size: Size | None, /) -> Size | None:
        return size


@dataclass(frozen=True)
class RandomVerticalFlip(Geometric):
    """Mirror top to bottom with probability `p`."""

    p: float = 0.5

    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        checks.number("RandomVerticalFlip: p", self.p, 0, 1)

    def apply_to(self, plan: Plan, numbers: Sequence[float], /) -> Plan:
        return plan.flip(y=True) if numbers[0] < self.p else plan

    def size_after(self, size: Size | None, /) -> Size | None:
        return size


@dataclass(frozen=True)
class Letterbox(Geometric):
    """Resize to fit into `size`, and centre the image on a plain background.

    One side becomes that of `size`; the other one keeps the aspect, rounded down as in `Resize`.

    Args:
        size: of the result, an int (square) or (height, width).
        fill: the background, a gray level or (red, green, blue).
        antialias: shrink with an antialiasing filter.
    """

    size: Any
    fill: Any = 114  # the gray that the YOLO family pads with
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checks.size("Letterbox: size", self.size))
        object.__setattr__(self, "fill", checks.color("Letterbox: fill", self.fill))
        checks.flag("Letterbox: antialias", self.antialias)

    def apply_to(self, plan: Plan, _numbers: Sequence[float], /) -> Plan:
        inner = fitting(plan.out_size, self.size)
        x, y = (self.size.width - inner.width) // 2, (self.size.height - inner.height) // 2
        return plan.resize(inner, antialias=self.antialias).pad(self.size, x, y, self.fill)

    def size_after(self, _size: Size | None, /) -> Size | None:
        return self.size  # type: ignore[no-any-return]
