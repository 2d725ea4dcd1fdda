"""Samples: make the samples at positions of an epoch, one after the other.

In: spans of positions. Out: samples, or batches, in order. The encoded images of some samples are read ahead, in the
order of the file; an error is raised at the position of the sample that it concerns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import default_collate

from fastdata.datasets.sample_reader import SampleReader
from fastdata.datasets.skipped import Skipped
from fastdata.errors import FastdataError, FormatError, LoadError, OptionError, ResourceError
from fastdata.fields.collate import int64, stacked
from fastdata.formats.base import record_name
from fastdata.order import EpochOrder, stand_in
from fastdata.sample import Sample, SampleDecoder

# Replacements that are tried for one sample. If half of a data set is damaged, 32 in a row fail once in 4 billion.
_ATTEMPTS = 32


class Samples:
    """The samples of one epoch.

    Args:
        reader: reads records and makes samples of them.
        decoder: how samples are made.
        order: the order of the records.
        ahead: how many bytes of encoded images are read ahead at most.
        skipped: samples that cannot be made are replaced, and listed here; None: they raise an error.
    """

    def __init__(
        self, reader: SampleReader, decoder: SampleDecoder, order: EpochOrder, ahead: int, skipped: Skipped | None
    ) -> None:
        self._samples, self._decoder, self._order = reader, decoder, order
        self._reader, self._ahead, self._skipped = reader.reader, ahead, skipped

    def singles(self, spans: Sequence[tuple[int, int]], lot: int) -> Iterator[Any]:
        """The samples of these spans; `lot` of them are read together."""
        for start, stop in spans:
            for low in range(start, stop, lot):
                for sample in self._at([(low, min(low + lot, stop))]):
                    yield sample.as_selected(self._decoder.selection)

    def batches(self, spans: Sequence[tuple[int, int]], lot: int) -> Iterator[Any]:
        """A batch for each span; `lot` of them are read together."""
        for first in range(0, len(spans), lot):
            some = spans[first : first + lot]
            made = self._at(some)
            for start, stop in some:
                yield self._collate(list(itertools.islice(made, stop - start)))

    def _collate(self, samples: list[Sample]) -> Any:
        selection = self._decoder.selection
        fields = {stored.name: stored.field for stored in selection.stored}
        batch: dict[str, Any] = {}
        for name in selection.names:
            column = [sample[name] for sample in samples]
            if name == "image":
                batch[name] = self._images(column)
            elif name == "index":
                batch[name] = int64(column)
            elif name in fields:
                batch[name] = fields[name].collate(column)
            else:
                batch[name] = stacked(column)
        return batch if selection.as_dict else list(batch.values())

    def _images(self, images: list[Any]) -> Any:
        shapes = sorted({tuple(image.shape) for image in images if hasattr(image, "shape")})
        if len(shapes) > 1:
            raise OptionError(
                f"{self._reader.path}: images of different shapes in one batch: {', '.join(map(str, shapes[:4]))}; "
                "give a transform that makes them equal, or convert with --resize N --resize-mode crop"
            )
        return default_collate(images)

    def _at(self, spans: Sequence[tuple[int, int]]) -> Iterator[Sample]:
        """The samples at the positions of these spans, which are read together, so they should be few."""
        indices = np.concatenate([self._order.indices(*span) for span in spans])
        positions = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])
        ahead = self._read(indices)
        # The random numbers of each sample, the same in every worker. Positions after the end are the epoch's first
        # samples again.
        numbers = self._numbers(indices, positions // self._order.count)
        for row, index in enumerate(indices.tolist()):
            try:
                sample = self._samples.sample(self._decoder, index, numbers[row], ahead.get(index))
            except FastdataError as error:  # wrong options and failing machines are not damage
                if self._skipped is None or isinstance(error, (OptionError, ResourceError)):
                    raise
                sample = self._replacement(int(positions[row]), index, error, self._skipped)
            yield sample

    def _numbers(self, indices: ArrayLike, occurrences: ArrayLike) -> list[list[float]]:
        order = self._order
        drawn: list[list[float]] = self._decoder.pipeline.numbers(
            order.seed, order.epoch, indices, occurrences
        ).tolist()
        return drawn

    def _read(self, indices: NDArray[np.int64]) -> dict[int, bytes]:
        """The images' bytes, read in the order of the file up to the limit."""
        ahead: dict[int, bytes] = {}
        if not self._decoder.needs_image:
            return ahead
        room = self._ahead
        for index in np.unique(indices).tolist():
            try:
                blob = self._samples.encoded(index)
            except (FormatError, LoadError):  # raised again at this record's position
                continue
            room -= len(blob)
            if room < 0:
                break
            ahead[index] = bytes(blob)
        return ahead

    def _replacement(self, position: int, index: int, error: FastdataError, skipped: Skipped) -> Sample:
        """The replacement of a sample that cannot be made: a function of seed, epoch and position."""
        order, failed = self._order, index
        for attempt in range(1, _ATTEMPTS + 1):
            skipped.add(failed, self._reason(failed, error))
            another_position, occurrence = stand_in(order.seed, order.epoch, position, attempt, order.count)
            failed = int(order.indices(another_position, another_position + 1)[0])
            try:
                return self._samples.sample(self._decoder, failed, self._numbers([failed], [occurrence])[0])
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
        """The error's message without the record's name."""
        return str(error).removeprefix(f"{record_name(self._reader, index)}: ")
