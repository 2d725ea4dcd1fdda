"""Pipeline: a user's `transform`, split once into leading geometric transforms and the callables after them.

The geometric transforms become a `Plan`. The random numbers of a whole batch are drawn at once, as a pure function of
(seed, epoch, index, occurrence), so that a sample's plan depends neither on its batch nor on the process it is made in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdata.checks import refuse
from fastdata.errors import OptionError
from fastdata.seeding import keys, uniform
from fastdata.size import Size
from fastdata.transforms.callables import Form, TransformCall, check_form
from fastdata.transforms.geometry import Geometric
from fastdata.transforms.plan import Plan

if TYPE_CHECKING:
    from fastdata.codec.decode import Rules
    from fastdata.codec.info import Data

# The stream of random numbers for plans; the order of an epoch takes lower ones.
STREAM = 16


class Pipeline:
    """One or several transforms, in two parts.

    Args:
        transforms: None, a geometric transform, any callable, or a sequence of these.
        form: what the first callable is called with: "array", "tensor" or "pil"; None decides by its library.

    Attributes:
        geometric: the leading geometric transforms.
        callables: everything from the first other transform on.
        draws: how many numbers a sample takes.

    Raises:
        OptionError: something is not callable.
    """

    def __init__(
        self, transforms: Callable[..., Any] | Iterable[Callable[..., Any]] | None = None, form: Form = None
    ) -> None:
        given = _listed(transforms)
        check_form(given, form)
        leading = next((at for at, one in enumerate(given) if not isinstance(one, Geometric)), len(given))
        self.geometric: tuple[Geometric, ...] = given[:leading]
        # What one callable returns is passed to the next unchanged.
        self.callables = tuple(TransformCall(one, form=None if at else form) for at, one in enumerate(given[leading:]))
        self.draws = sum(one.draws for one in self.geometric)
        self._steps: list[tuple[Callable[[Plan, Sequence[float]], Plan], int, int]] = []
        start = 0
        for one in self.geometric:
            self._steps.append((one.apply_to, start, start + one.draws))
            start += one.draws

    @property
    def size(self) -> Size | None:
        """The size of every planned image, None if it depends on the source."""
        size: Size | None = None
        for one in self.geometric:
            size = one.size_after(size)
        return size

    def numbers(
        self, seed: int, epoch: int, indices: ArrayLike, occurrences: ArrayLike = 0, view: int = 0
    ) -> NDArray[np.float64]:
        """A row of `draws` numbers in [0, 1) for each index, different in each occurrence and each view."""
        return uniform(keys(seed, epoch, indices, stream=STREAM, occurrences=occurrences, view=view), self.draws)

    def plan(self, size: tuple[int, int], row: Sequence[float]) -> Plan:
        """The plan for an upright image of (height, width) and one row of numbers (a list is fastest)."""
        plan = Plan.whole(size)
        for apply, start, stop in self._steps:
            plan = apply(plan, row[start:stop])
        return plan

    def render(
        self,
        data: Data,
        row: Sequence[float] = (),
        *,
        out: NDArray[np.uint8] | None = None,
        exact: bool = False,
        rules: Rules | None = None,
        notes: list[str] | None = None,
    ) -> NDArray[np.uint8]:
        """The planned pixels of an encoded image; see `fastdata.transforms.render.render`."""
        from fastdata.codec.decode import DEFAULT_RULES  # OpenCV is needed from here on
        from fastdata.transforms.render import render

        return render(data, self, row, out=out, exact=exact, rules=rules or DEFAULT_RULES, notes=notes)

    def call(self, image: Any, label: Any = None) -> Any:
        """Call the callables on an image, one after the other."""
        for one in self.callables:
            image, label = one(image, label)
        return image

    def __repr__(self) -> str:
        return f"Pipeline({[*self.geometric, *self.callables]!r})"


def _listed(transforms: Any) -> tuple[Any, ...]:
    if transforms is None:
        return ()
    for one in transforms if isinstance(transforms, list | tuple) else (transforms,):
        if isinstance(one, type) and issubclass(one, Geometric):
            raise OptionError(
                f"transform: {one.__name__} is a class; give an instance of it: fastdata.{one.__name__}(...)"
            )
    if isinstance(transforms, list | tuple):
        return tuple(transforms)
    if not callable(transforms):
        example = "[fastdata.RandomResizedCrop(224), fastdata.RandomHorizontalFlip()]"
        refuse("a transform", f"callable, or a list of callables such as {example}", transforms)
    return (transforms,)
