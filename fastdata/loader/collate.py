"""Collation: record numbers, images and values in, a batch of images, labels and other columns out.

torch is imported where it is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.fields.collate import image_tensor, int64, stacked
from fastdata.formats.base import Reader
from fastdata.loader.sample_log import Values
from fastdata.loader.settings import Settings
from fastdata.transforms.callables import UserCall


class Collation:
    """Makes batches as the consumer gets them.

    Args:
        settings: of the loader.
        reader: for labels and keys.
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings, self._reader = settings, reader
        self._fields = {stored.name: stored.field for stored in settings.selection.stored}

    def batch(self, indices: NDArray[np.int64], images: Any, values: Values) -> Any:
        """A batch.

        Args:
            indices: the numbers of the records.
            images: a tensor (a list of them with `views`), or a list of images for the `collate_fn`; None where none
                are wanted.
            values: what else was made of the records; the other columns stand in the index.
        """
        settings, names, as_dict = self._settings, self._settings.selection.names, self._settings.selection.as_dict
        batch: Any
        if settings.collate_fn is not None:
            columns = [
                self._images(images) if name == "image" else self._column(name, indices, values) for name in names
            ]
            rows: Any = zip(*columns, strict=True)
            if as_dict:
                rows = (dict(zip(names, row, strict=True)) for row in rows)
            with UserCall(f"{self._reader.path}: collate_fn"):
                batch = settings.collate_fn(next(rows) if settings.single else list(rows))
        else:
            part = self._one if settings.single else self._all
            parts = [part(name, indices, images, values) for name in names]
            batch = dict(zip(names, parts, strict=True)) if as_dict else tuple(parts)
        if settings.pin_memory:
            batch = pinned(batch)
        return batch

    def _all(self, name: str, indices: NDArray[np.int64], images: Any, values: Values) -> Any:
        """One field of a batch; of one that moves with the image, a column for each view, where there are several."""
        if name == "image":
            return images
        column, field = self._column(name, indices, values), self._fields.get(name)
        if field is None:
            return stacked(column) if name == "key" or name in values else int64(column)
        if field.moves and self._settings.views > 1:
            return [field.collate(view) for view in zip(*column, strict=True)]
        return field.collate(column)

    def _one(self, name: str, indices: NDArray[np.int64], images: Any, values: Values) -> Any:
        """One field of a single sample, as it is in a batch of one, without the first axis; numbers are Python's."""
        if name == "image":
            return images[0] if self._settings.views == 1 else [view[0] for view in images]
        item = self._column(name, indices, values)[0]
        return item.item() if isinstance(item, np.generic) else item

    def _images(self, images: list[Any]) -> list[Any]:
        """The images of samples."""
        if self._settings.views > 1:
            return [[image_tensor(view) for view in views] for views in images]
        return [image_tensor(image) for image in images]

    def _column(self, name: str, indices: NDArray[np.int64], values: Values) -> Any:
        """One field of all samples, but for the image: an int64 array, or a list."""
        if name in values:
            return values[name]
        if name == "index":
            return indices
        if name == "label":
            return self._reader.labels[indices]
        return [self._reader.keys[index] for index in indices.tolist()]


def pinned(batch: Any) -> Any:
    """A copy of every tensor in a batch, in torch's pinned memory."""
    import torch

    from fastdata.tree import map_tensors

    return map_tensors(batch, torch.Tensor.pin_memory)
