"""Size: height and width, always in this order, as torchvision has it."""

from __future__ import annotations

from typing import NamedTuple


class Size(NamedTuple):
    """The size of an image in pixels."""

    height: int
    width: int

    def __repr__(self) -> str:  # as users write it
        return f"({self.height}, {self.width})"
