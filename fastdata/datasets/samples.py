"""Samples: what stands at positions of an epoch, made one after the other.

In: spans of positions. Out: `(image, label)`, or batches, in order. The encoded images of some of them are read first,
in the order of the file, and what goes wrong is raised where the sample stands that it is about.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastdata.datasets.pictures import Pictures, named
from fastdata.datasets.skipped import Skipped
from fastdata.errors import FastdataError, FormatError, LoadError, OptionError, ResourceError
from fastdata.formats.base import record_name
from fastdata.order import EpochOrder, stand_in
from fastdata.transforms.callables import Form, as_form
from fastdata.transforms.pipeline import Pipeline

# Replacements that are tried for one sample. With half of a data set damaged, 32 in a row are one in 4 billion.
_ATTEMPTS = 32


class Samples:
    """The samples of one epoch.

    Args:
        pictures: the records' images, decoded.
        pipeline: what is done with them.
        order: which record stands where.
        form: what a sample is where nothing is done with it.
        ahead: how many bytes of encoded images are read ahead at most.
        skipped: samples that cannot be made are replaced, and told of here; None: they are errors.
    """

    def __init__(
        self,
        pictures: Pictures,
        pipeline: Pipeline,
        order: EpochOrder,
        form: Form,
        ahead: int,
        skipped: Skipped | None,
    ) -> None:
        self._pictures, self._pipeline, self._order, self._form = pictures, pipeline, order, form
        self._reader, self._ahead, self._skipped = pictures.reader, ahead, skipped

    def singles(self, spans: Sequence[tuple[int, int]], lot: int) -> Iterator[tuple[Any, Any]]:
        """One sample after the other; `lot` of them are read together."""
        for start, stop in spans:
            for low in range(start, stop, lot):
                yield from self._at([(low, min(low + lot, stop))])

    def batches(self, spans: Sequence[tuple[int, int]], lot: int) -> Iterator[Any]:
        """Each span as a batch; `lot` of them are read together."""
        for first in range(0, len(spans), lot):
            some = spans[first : first + lot]
            made = self._at(some)
            for start, stop in some:
                yield self._collate(list(itertools.islice(made, stop - start)))

    def _collate(self, samples: list[tuple[Any, Any]]) -> Any:
        shapes = sorted({tuple(image.shape) for image, _ in samples if hasattr(image, "shape")})
        if len(shapes) > 1:
            raise OptionError(
                f"{self._reader.path}: pictures of different shapes in one batch: {', '.join(map(str, shapes[:4]))}; "
                "give a transform that makes them equal, or convert with --resize N --resize-mode crop"
            )
        return default_collate(samples)

    def _at(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[Any, Any]]:
        """The samples at the positions of these spans, which should be few: they are read together."""
        indices = np.concatenate([self._order.indices(*span) for span in spans])
        positions = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])
        ahead = self._read(indices)
        # What the geometric transforms draw, sample by sample: the same in whatever worker. Positions behind the end
        # are the epoch's first samples once more.
        occurrences = positions // self._order.count
        numbers = self._pipeline.numbers(self._order.seed, self._order.epoch, indices, occurrences).tolist()
        for row, index in enumerate(indices.tolist()):
            try:
                sample = self._sample(index, ahead.get(index), numbers[row])
            except FastdataError as error:  # wrong options and failing machines are no damage
                if self._skipped is None or isinstance(error, (OptionError, ResourceError)):
                    raise
                sample = self._replacement(int(positions[row]), index, error, self._skipped)
            yield sample

    def _read(self, indices: NDArray[np.int64]) -> dict[int, bytes]:
        """The images' bytes, read in the order of the file, until there are enough."""
        ahead: dict[int, bytes] = {}
        room = self._ahead
        for index in np.unique(indices).tolist():
            try:
                blob = self._pictures.encoded(index)
            except (FormatError, LoadError):  # raised again where this record stands
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

    def _replacement(self, position: int, index: int, error: FastdataError, skipped: Skipped) -> tuple[Any, Any]:
        """What stands in for a sample that cannot be made: a function of seed, epoch and position."""
        order, failed = self._order, index
        for attempt in range(1, _ATTEMPTS + 1):
            skipped.add(failed, self._reason(failed, error))
            place, occurrence = stand_in(order.seed, order.epoch, position, attempt, order.count)
            failed = int(order.indices(place, place + 1)[0])
            numbers = self._pipeline.numbers(order.seed, order.epoch, [failed], [occurrence]).tolist()
            try:
                return self._sample(failed, None, numbers[0])
            except (OptionError, ResourceError):
                raise
            except FastdataError as another:
                error = another
        last = f"{self._reader.keys[failed]!r} ({self._reason(failed, error)})"
        raise LoadError(
            f"{record_name(self._reader, index)}: {_ATTEMPTS} records in a row failed, the last one {last}; "
            "`fastdata verify` names all that are damaged"
        ) from error

    def _reason(self, index: int, error: FastdataError) -> str:
        """What went wrong, without the record's name."""
        return str(error).removeprefix(f"{record_name(self._reader, index)}: ")
