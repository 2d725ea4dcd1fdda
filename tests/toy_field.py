"""A kind of value that fastdata does not know, for the tests of the table of fields; importable in workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError
from fastdata.fields.base import Field
from fastdata.transforms.plan import Plan


@dataclass(frozen=True)
class PointField(Field[NDArray[np.float64]]):
    """One point (x, y) in pixels of the image, as text; it moves with the image. Batches hold a list of tuples."""

    suffixes = ("point",)
    repeats = True
    moves = True

    def decode(self, data: bytes | bytearray | memoryview) -> NDArray[np.float64]:
        numbers = bytes(data).split()
        if len(numbers) != 2:
            raise FormatError("not two numbers")
        return np.array([float(number) for number in numbers])

    def apply(self, value: NDArray[np.float64], plan: Plan) -> NDArray[np.float64]:
        from fastdata.transforms.targets import apply_to_boxes

        return apply_to_boxes(plan, [[*value, *value]])[0, :2]

    def encode(self, value: NDArray[np.float64]) -> tuple[str, bytes]:
        return "point", b"%r %r" % (float(value[0]), float(value[1]))

    def collate(self, values: Sequence[NDArray[np.float64] | None]) -> Any:
        return [None if value is None else tuple(value.tolist()) for value in values]
