"""ImageDataset: a data set of any format as a map-style torch Dataset, with ImageFolder's attributes.

In: a path (or a reader) and transforms. Out: `(image, label)` for an index. It works in a DataLoader with any number
of workers under any start method: nothing in it is open that a worker could break, and pickling carries the path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from fastdata.codec.kinds import IMAGE_SUFFIXES, READABLE
from fastdata.datasets.pictures import Pictures, named
from fastdata.datasets.remarks import Remarks
from fastdata.datasets.source import Source, in_memory, open_source, refuse_unknown
from fastdata.errors import FastdataError, OptionError
from fastdata.formats.base import Reader
from fastdata.transforms.callables import Form, PictureCall, UserCall, as_form, check_form
from fastdata.transforms.pipeline import Pipeline

if TYPE_CHECKING:
    from typing_extensions import Never

# Of torchvision's ImageFolder: what takes the place of arguments and attributes that are not here.
_OF_IMAGE_FOLDER = {
    "root": "the first argument is the path",
    "loader": "images are decoded by fastdata; form='pil' gives PIL images, fastdata.open(path) the encoded bytes",
    "is_valid_file": "files are known by their content; convert a folder of those that you want",
    "extensions": "files are known by their content; convert a folder of those that you want",
    "find_classes": "the class names are in `classes`, their numbers in `class_to_idx`",
    "allow_empty": "class folders without images keep their number, always",
}


class ImageDataset(Dataset[tuple[Any, Any]]):
    """Pictures and their class numbers, by index.

    Without a transform, a picture is a contiguous, writable HWC uint8 RGB array, upright, which belongs to the caller.
    A torchvision transform gets a uint8 CHW tensor, an albumentations transform `image=array`, any other callable the
    array. Of a picture that fastdata's own geometric transforms lead to, only what they need is decoded; they draw from
    Python's `random`.

    Args:
        path: what `fastdata.open` takes, or a reader.
        transform: called with the picture; a list is called one after the other.
        target_transform: called with the label.
        transforms: called with both, returns both; instead of the other two.
        cache: "ram" reads the encoded data into memory now, one copy for this process and all its workers (each rank
            that is started by itself has its own).
        exact: never decode a JPEG at 1/2, 1/4 or 1/8 of its size, however much smaller a geometric transform makes it.
        form: what the transform is called with: "array" (H x W x 3 uint8), "tensor" (3 x H x W uint8) or "pil" (a PIL
            image, as torchvision's ImageFolder gives it); None goes by whose transform it is. Without a transform, what
            comes.
        verify: compare the checksum (CRC-32) of every image that is read with the one in the index; with `cache`, once,
            while it is filled. False leaves it out.
        max_pixels: larger images are refused before they take memory; None: as the reader was opened, else 178,956,970.
            A data set may lower this limit, never raise it.
        image_field: which field holds the image, in data that others wrote and whose names do not tell.
        label_field: which field holds the label, likewise ("json:label": an entry of a JSON field).
        progress: show on stderr how far the cache is.

    Attributes:
        reader: the reader, for whatever is not said here.
        warnings: (key, message) where a decoder had something to say of an image and made one all the same: once a
            record, of the first thousand, in this process (each of a DataLoader's workers has its own list).
        root: the path of the data set.
        extensions: the endings of the image files that a plain folder is read from.
        classes: class names, by number.
        class_to_idx: class numbers, by name.
        targets: the label of each record, an int64 array (read-only); -1 without one.

    Raises:
        FormatError: `path` is no data set.
        CacheError: the cache would not fit.
        OptionError: arguments that exclude each other or are unknown.
    """

    def __init__(
        self,
        path: Source,
        transform: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        transforms: Callable[..., Any] | None = None,
        cache: Literal["ram"] | None = None,
        *,
        exact: bool = False,
        form: Form = None,
        verify: bool = True,
        max_pixels: int | None = None,
        image_field: str | None = None,
        label_field: str | None = None,
        progress: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown("ImageDataset", ImageDataset.__init__, unknown, _OF_IMAGE_FOLDER)
        if transforms is not None and (transform is not None or target_transform is not None):
            raise OptionError("give either transforms (called with picture and label) or transform/target_transform")
        self.transform, self.target_transform, self.transforms = transform, target_transform, transforms
        self.exact, self._verify, self._max_pixels = exact, verify, max_pixels
        self.form = form
        self._parts: tuple[Any, Any, Any, Pipeline, PictureCall | None] | None = None
        self._taken_apart()
        reader = open_source(
            path, image_field=image_field, label_field=label_field, max_pixels=max_pixels, verify=verify
        )
        self._reader = in_memory(reader, cache, verify=verify, progress=progress)
        self._pictures = Pictures(self.reader, verify=verify, max_pixels=max_pixels)
        self.classes = list(self.reader.classes)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    @property
    def reader(self) -> Reader:
        return self._reader

    @property
    def warnings(self) -> Remarks:
        return self._pictures.remarks

    @property
    def verify(self) -> bool:
        return self._verify

    @property
    def max_pixels(self) -> int | None:
        return self._max_pixels

    @property
    def root(self) -> str:
        return self.reader.path

    @property
    def extensions(self) -> tuple[str, ...]:
        return tuple(sorted(suffix for suffix, kind in IMAGE_SUFFIXES.items() if kind in READABLE))

    def __getattr__(self, name: str) -> Any:
        # Asked only for what is not found here: what torchvision's ImageFolder has, and this has not.
        words = f"; {_OF_IMAGE_FOLDER[name]}" if name in _OF_IMAGE_FOLDER else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{words}")

    @property
    def targets(self) -> NDArray[np.int64]:
        return self.reader.labels

    @cached_property
    def samples(self) -> list[tuple[str, int]]:
        """(source path, label) of every record; made when asked for, since lists of this kind cost memory."""
        return list(zip(self.reader.paths, self.targets.tolist(), strict=True))

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """The same as `samples`."""
        return self.samples

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """`(image, label)`: an H x W x 3 uint8 array and an int, or what the transforms make of them.

        Raises:
            IndexError: out of range; negative indices count from the end.
            DecodeError: the image cannot be decoded; as all errors, it names data set and key.
            FormatError: its bytes are not those that were written.
            LoadError: a transform raised an error.
        """
        try:
            return self._sample(index)
        except FastdataError as error:
            raise named(self.reader, index, error) from error

    def _sample(self, index: int) -> tuple[Any, Any]:
        pipeline, joint = self._taken_apart()
        numbers = [random.random() for _ in range(pipeline.draws)]
        image: Any = self._pictures.render(index, pipeline.plan_of(numbers), exact=self.exact)
        label: Any = int(self.reader.labels[index])
        if joint is not None:
            return joint(image, label)
        image = pipeline.call(image) if pipeline.callables else as_form(image, self.form)
        if self.target_transform is not None:
            with UserCall("target_transform"):
                label = self.target_transform(label)
        return image, label

    def _taken_apart(self) -> tuple[Pipeline, PictureCall | None]:
        """What is done with pictures; made anew when somebody has set another transform, as people do."""
        parts = self._parts
        if parts is None or parts[0] is not self.transform or parts[1] is not self.transforms or parts[2] != self.form:
            pipeline, joint = Pipeline(self.transform, self.form), None
            if self.transforms is not None:
                check_form([self.transforms], self.form)
                joint = PictureCall(self.transforms, joint=True, form=self.form)
            parts = self._parts = (self.transform, self.transforms, self.form, pipeline, joint)
        return parts[3:]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Any]]:
        """The samples of a batch, as a DataLoader's fetcher asks for them."""
        return [self[index] for index in indices]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "samples"}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: {len(self)} images, {len(self.classes)} classes", f"path: {self.reader.path}"]
        parts = ("transform", "target_transform", "transforms")
        lines += [f"{name}: {getattr(self, name)!r}" for name in parts if getattr(self, name) is not None]
        return "\n    ".join(lines)
