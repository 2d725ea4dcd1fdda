"""Given: what a DataLoader is given to read, with the arguments that an ImageDataset brings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastdata.datasets import ImageDataset
from fastdata.datasets.source import open_source
from fastdata.errors import OptionError
from fastdata.formats.base import Reader
from fastdata.transforms.callables import Form


class Given(NamedTuple):
    """What a loader is given to read. An ImageDataset brings some of the loader's arguments with it."""

    reader: Reader
    transform: Any = None
    target_transform: Callable[[Any], Any] | None = None
    fields: Sequence[str] | None = None
    exact: bool = False
    form: Form = None
    verify: bool = True
    max_pixels: int | None = None
    dataset: ImageDataset | None = None

    def transform_or(self, other: Any) -> Any:
        """The one transform that there is."""
        if self.transform is not None and other is not None:
            raise OptionError("the ImageDataset has a transform and another one is given: leave one of the two out")
        return other if self.transform is None else self.transform

    def fields_or(self, other: Sequence[str] | None) -> Sequence[str] | None:
        """What is asked for, which only one of the two may say."""
        if self.fields is not None and other is not None:
            raise OptionError("the ImageDataset has fields and others are given: leave one of the two out")
        return other if self.fields is None else self.fields


def given_as(data: Any, *, image_field: str | None, label_field: str | None, max_pixels: int | None) -> Given:
    """What is read, from a path, a reader or an ImageDataset.

    Raises:
        TypeError: it is none of these; it names torch's DataLoader, which takes anything.
    """
    if isinstance(data, ImageDataset) and _makes_its_samples(data):
        if data.transforms is not None:
            raise OptionError("an ImageDataset with transforms (image and label) needs torch.utils.data.DataLoader")
        reader = open_source(data.reader, image_field=image_field, label_field=label_field, verify=data.verify)
        limit = data.max_pixels if max_pixels is None else max_pixels
        return Given(
            reader, data.transform, data.target_transform, data.fields, data.exact, data.form, data.verify, limit, data
        )
    paths = isinstance(data, Sequence) and all(isinstance(path, (str, os.PathLike)) for path in data)
    if isinstance(data, (str, os.PathLike, Reader)) or paths:
        reader = open_source(data, image_field=image_field, label_field=label_field, max_pixels=max_pixels)
        return Given(reader, max_pixels=max_pixels)
    if type(getattr(data, "dataset", None)) is ImageDataset and hasattr(data, "indices"):
        raise TypeError(
            f"fastdata.DataLoader takes no {type(data).__name__}: give its parts, "
            "fastdata.DataLoader(subset.dataset, ..., indices=subset.indices)"
        )
    raise TypeError(
        f"fastdata.DataLoader reads a path, a fastdata Reader or an ImageDataset, not {type(data).__name__}; "
        "for any other data set use torch.utils.data.DataLoader with worker_init_fn=fastdata.seed_worker"
    )


def _makes_its_samples(data: ImageDataset) -> bool:
    """Not a class of the user's own that makes them in another way, which the workers here would pass by."""
    return all(getattr(type(data), name) is getattr(ImageDataset, name) for name in ("__getitem__", "__len__"))
