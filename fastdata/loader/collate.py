"""Collation: a finished job in, a batch of images, labels and other columns out. torch is imported where needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.base import Reader, raise_named, record_name
from fastdata.formats.locations import record_of
from fastdata.loader.crew import Job
from fastdata.loader.settings import FIELDS, Settings
from fastdata.transforms.callables import UserCall


class Collation:
    """Makes batches of finished jobs.

    Args:
        settings: of the loader.
        reader: for labels, keys and other fields.
        label_of: the user's target_transform.
    """

    def __init__(self, settings: Settings, reader: Reader, label_of: Callable[[int], Any] | None) -> None:
        self._settings, self._reader, self._label_of = settings, reader, label_of

    def batch(self, job: Job, images: Callable[[Job], Any]) -> Any:
        """A finished job as the consumer gets it. `images` hands out its images where they are not collated."""
        settings = self._settings
        names = settings.fields or FIELDS
        batch: Any
        if settings.collate_fn is not None:
            columns = [self._column(name, job, job.samples) for name in names]
            rows: Any = zip(*columns, strict=True)
            if settings.fields:
                rows = (dict(zip(names, row, strict=True)) for row in rows)
            with UserCall(f"{self._reader.path}: collate_fn"):
                batch = settings.collate_fn(next(rows) if settings.single else list(rows))
        else:
            part = self._one if settings.single else self._all
            parts = [part(name, job, images) for name in names]
            batch = dict(zip(names, parts, strict=True)) if settings.fields else tuple(parts)
        if settings.pin_memory:
            batch = pinned(batch)
        return batch

    def _all(self, name: str, job: Job, images: Callable[[Job], Any]) -> Any:
        """One field of a batch."""
        return images(job) if name == "image" else stacked(self._column(name, job))

    def _one(self, name: str, job: Job, images: Callable[[Job], Any]) -> Any:
        """One field of a single sample, as it is in a batch of one, without the first axis; numbers are Python's."""
        if name == "image":
            made = images(job)
            return made[0] if self._settings.views == 1 else [view[0] for view in made]
        item = self._column(name, job)[0]
        return item.item() if isinstance(item, np.generic) else item

    def _transformed(self, label_of: Callable[[int], Any], indices: list[int], labels: list[int]) -> list[Any]:
        made = []
        for index, label in zip(indices, labels, strict=True):
            with UserCall(f"{record_name(self._reader, index)}: target_transform"):
                made.append(label_of(label))
        return made

    def _column(self, name: str, job: Job, samples: list[Any] | None = None) -> Any:
        """One field of all samples: an int64 array, or a list."""
        if name == "image":
            if self._settings.views > 1:
                return [[picture_tensor(view) for view in sample] for sample in samples or []]
            return [picture_tensor(sample) for sample in samples or []]
        if name == "index":
            return job.indices
        if name == "label":
            labels = self._reader.labels[job.indices]
            return (
                labels
                if self._label_of is None
                else self._transformed(self._label_of, job.indices.tolist(), labels.tolist())
            )
        if name == "key":
            return [self._reader.keys[index] for index in job.indices.tolist()]
        return [self._field(name, index) for index in job.indices.tolist()]

    def _field(self, name: str, index: int) -> Any:
        """A field of one record as it was stored; with `verify`, checksums are compared, as those of images are."""
        try:
            record = record_of(self._reader, index) if self._settings.verify else self._reader[index]
        except Exception as error:
            raise_named(self._reader, index, error)
            raise
        return record.fields.get(name)


def pinned(batch: Any) -> Any:
    """A copy of every tensor in it, in torch's pinned memory."""
    import torch

    from fastdata.tree import map_tensors

    return map_tensors(batch, torch.Tensor.pin_memory)


def stacked(column: Any) -> Any:
    """A column as a tensor where it holds numbers, else as it is."""
    import torch

    if isinstance(column, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(column))
    if column and all(isinstance(item, (int, float)) for item in column):
        return torch.tensor(column)
    if column and all(isinstance(item, torch.Tensor) for item in column):
        return torch.stack(column)
    return column


def picture_tensor(sample: Any) -> Any:
    """A sample for `collate_fn`: HWC arrays as CHW tensors, all else as it is."""
    import torch

    if isinstance(sample, np.ndarray) and sample.ndim == 3 and sample.dtype.kind in "biuf":
        array: NDArray[Any] = sample
        if not array.flags.writeable or min(array.strides) < 0:  # torch takes neither
            array = array.copy()
        return torch.from_numpy(array).permute(2, 0, 1)
    return sample
