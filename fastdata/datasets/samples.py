"""Samples: what stands at positions of an epoch, made one after the other.

In: spans of positions. Out: `(image, label)`, in order. The encoded images of all of them are read first, in the order
of the file, and what goes wrong is raised where the sample stands that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.datasets.pictures import Pictures, named
from fastdata.errors import FastdataError, FormatError
from fastdata.order import EpochOrder
from fastdata.transforms.callables import Form, as_form
from fastdata.transforms.pipeline import Pipeline


class Samples:
    """The samples of one epoch.

    Args:
        pictures: the records' images, decoded.
        pipeline: what is done with them.
        order: which record stands where.
        form: what a sample is where nothing is done with it.
        ahead: how many bytes of encoded images are read ahead at most.
    """

    def __init__(self, pictures: Pictures, pipeline: Pipeline, order: EpochOrder, form: Form, ahead: int) -> None:
        self._pictures, self._pipeline, self._order, self._form = pictures, pipeline, order, form
        self._reader, self._ahead = pictures.reader, ahead

    def at(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[Any, Any]]:
        """The samples at the positions of these spans, which should be few: they are read together."""
        indices = np.concatenate([self._order.indices(*span) for span in spans])
        positions = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])
        ahead = self._read(indices)
        # What the geometric transforms draw, sample by sample: the same in whatever worker. Positions behind the end
        # are the epoch's first samples once more.
        occurrences = positions // self._order.count
        numbers = self._pipeline.numbers(self._order.seed, self._order.epoch, indices, occurrences).tolist()
        for row, index in enumerate(indices.tolist()):
            yield self._sample(index, ahead.get(index), numbers[row])

    def _read(self, indices: NDArray[np.int64]) -> dict[int, bytes]:
        """The images' bytes, read in the order of the file, until there are enough."""
        ahead: dict[int, bytes] = {}
        room = self._ahead
        for index in np.unique(indices).tolist():
            try:
                blob = self._pictures.encoded(index)
            except FormatError:  # raised again where this record stands
                continue
            room -= len(blob)
            if room < 0:
                break
            ahead[index] = bytes(blob)
        return ahead

    def _sample(self, index: int, data: bytes | None, numbers: list[float]) -> tuple[Any, Any]:
        try:
            image: Any = self._pictures.render(index, self._pipeline.plan_of(numbers), data=data)
            image = self._pipeline.call(image) if self._pipeline.callables else as_form(image, self._form)
        except FastdataError as error:
            raise named(self._reader, index, error) from error
        return image, int(self._reader.labels[index])
