"""The image of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import DEFAULT_RULES, Rules, decode
from fastdata.codec.encode import Encoding, encode
from fastdata.codec.encoded import open_encoded
from fastdata.fields.base import Field
from fastdata.fields.collate import image_tensor, stacked
from fastdata.record import IMAGE_FIELDS
from fastdata.transforms.render import render_array, render_plan

if TYPE_CHECKING:
    from fastdata.codec.info import Data
    from fastdata.transforms.plan import Plan

RGB = NDArray[np.uint8]


@dataclass(frozen=True)
class ImageField(Field[RGB]):
    """An image: H x W x 3 uint8 RGB, upright. Batches hold N x 3 x H x W.

    Args:
        rules: how it is decoded.
        encoding: the kind of file to write.
        quality: 1 to 100, for "jpg" and "webp".
    """

    rules: Rules = DEFAULT_RULES
    encoding: Encoding = "png"
    quality: int = 90

    suffixes = tuple(sorted(IMAGE_FIELDS))
    moves = True
    slot = True

    def decode(self, data: Data) -> RGB:
        rules = self.rules
        return decode(data, alpha=rules.alpha, max_pixels=rules.max_pixels, keep_damaged=rules.keep_damaged)

    def apply(self, value: RGB, plan: Plan) -> RGB:
        return render_array(value, plan)

    def make(self, data: Data, plan: Plan | None) -> RGB:
        """Decode only what the plan needs, if the bytes are an indexed JPEG or raw pixels, and apply the plan."""
        return self.decode(data) if plan is None else render_plan(open_encoded(data, self.rules), plan)

    def encode(self, value: RGB) -> tuple[str, bytes]:
        return self.encoding, encode(value, self.encoding, quality=self.quality)

    def collate(self, values: Sequence[Any]) -> Any:
        return stacked([image_tensor(value) for value in values])
