"""Collation: record numbers and images in, a batch of images, labels and other columns out.

torch is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FastdataError
from fastdata.fields.collate import image_tensor, int64, stacked
from fastdata.fields.selection import Stored
from fastdata.formats.base import Reader, raise_named, record_name
from fastdata.formats.locations import blob_of
from fastdata.loader.settings import Settings
from fastdata.transforms.callables import UserCall


class Collation:
    """Makes batches as the consumer gets them.

    Args:
        settings: of the loader.
        reader: for labels, keys and other fields.
        target_transform: the user's.
    """

    def __init__(self, settings: Settings, reader: Reader, target_transform: Callable[[Any], Any] | None) -> None:
        self._settings, self._reader, self._target_transform = settings, reader, target_transform
        self._selection = settings.selection
        self._stored = {stored.name: stored for stored in settings.selection.stored}

    def batch(self, indices: NDArray[np.int64], images: Any) -> Any:
        """A batch.

        Args:
            indices: the numbers of the records.
            images: a tensor (a list of them with `views`), or a list of samples for the `collate_fn`; None where no
                images are wanted.
        """
        settings, names, as_dict = self._settings, self._selection.names, self._selection.as_dict
        batch: Any
        if settings.collate_fn is not None:
            columns = [self._column(name, indices, images) for name in names]
            rows: Any = zip(*columns, strict=True)
            if as_dict:
                rows = (dict(zip(names, row, strict=True)) for row in rows)
            with UserCall(f"{self._reader.path}: collate_fn"):
                batch = settings.collate_fn(next(rows) if settings.single else list(rows))
        else:
            part = self._one if settings.single else self._all
            parts = [part(name, indices, images) for name in names]
            batch = dict(zip(names, parts, strict=True)) if as_dict else tuple(parts)
        if settings.pin_memory:
            batch = pinned(batch)
        return batch

    def _all(self, name: str, indices: NDArray[np.int64], images: Any) -> Any:
        """One field of a batch."""
        if name == "image":
            return images
        column = self._column(name, indices)
        if name in self._stored:
            return self._stored[name].field.collate(column)
        return stacked(column) if name == "key" or self._transforms(name) else int64(column)

    def _one(self, name: str, indices: NDArray[np.int64], images: Any) -> Any:
        """One field of a single sample, as it is in a batch of one, without the first axis; numbers are Python's."""
        if name == "image":
            return images[0] if self._settings.views == 1 else [view[0] for view in images]
        item = self._column(name, indices)[0]
        return item.item() if isinstance(item, np.generic) else item

    def _transforms(self, name: str) -> bool:
        return name == self._selection.target and self._target_transform is not None

    def _column(self, name: str, indices: NDArray[np.int64], samples: list[Any] | None = None) -> Any:
        """One field of all samples: an int64 array, or a list."""
        if name == "image":
            if self._settings.views > 1:
                return [[image_tensor(view) for view in sample] for sample in samples or []]
            return [image_tensor(sample) for sample in samples or []]
        if name == "index":
            return indices
        if name == "label":
            labels = self._reader.labels[indices]
            return self._transformed(indices.tolist(), labels.tolist()) if self._transforms(name) else labels
        if name == "key":
            return [self._reader.keys[index] for index in indices.tolist()]
        return [self._value(self._stored[name], index) for index in indices.tolist()]

    def _transformed(self, indices: list[int], labels: list[int]) -> list[Any]:
        made = []
        assert self._target_transform is not None
        for index, label in zip(indices, labels, strict=True):
            with UserCall(f"{record_name(self._reader, index)}: target_transform"):
                made.append(self._target_transform(label))
        return made

    def _value(self, stored: Stored, index: int) -> Any:
        """A field of one record; with `verify`, its checksum is compared, as that of the image is."""
        try:
            blob = blob_of(self._reader, index, stored.record_name, verify=self._settings.verify)
        except Exception as error:
            raise_named(self._reader, index, error)
            raise
        try:
            return None if blob is None else stored.field.make(blob, None)
        except FastdataError as error:
            name = record_name(self._reader, index)
            raise type(error)(f"{name}: field {stored.record_name!r}: {error}") from error


def pinned(batch: Any) -> Any:
    """A copy of every tensor in a batch, in torch's pinned memory."""
    import torch

    from fastdata.tree import map_tensors

    return map_tensors(batch, torch.Tensor.pin_memory)
