"""ImageDataset: a data set of any format as a map-style torch Dataset, with ImageFolder's attributes.

In: a path (or a reader) and transforms. Out: `(image, label)`, or a dict of fields, for an index. It works in a
DataLoader with any number of workers and any start method: it holds nothing open that a worker could break, and is
pickled as its path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from fastdata.checks import flag
from fastdata.codec.decode import Rules
from fastdata.codec.kinds import IMAGE_SUFFIXES, READABLE
from fastdata.datasets.remarks import Remarks
from fastdata.datasets.sample_reader import SampleReader
from fastdata.datasets.source import Source, in_memory, open_source, refuse_unknown
from fastdata.errors import OptionError
from fastdata.fields.selection import Selection
from fastdata.formats.base import Reader, allowed_pixels
from fastdata.sample import SampleDecoder
from fastdata.transforms.callables import Form, TransformCall, check_form
from fastdata.transforms.pipeline import Pipeline

if TYPE_CHECKING:
    from typing_extensions import Never

# Arguments and attributes of torchvision's ImageFolder that are missing here, and what takes their place.
_OF_IMAGE_FOLDER = {
    "root": "the first argument is the data: a path, or a reader",
    "loader": "fastdata decodes the images; form='pil' gives PIL images, fastdata.open(path) the encoded bytes",
    "is_valid_file": "files are recognised by their content; convert a folder of the files that you want",
    "extensions": "files are recognised by their content; convert a folder of the files that you want",
    "find_classes": "the class names are in `classes`, their numbers in `class_to_idx`",
    "allow_empty": "class folders without images always keep their number",
}


class ImageDataset(Dataset[Any]):
    """Images and their class numbers, by index: `(image, label)`, or dicts with `fields`.

    Without a transform, an image is a contiguous, writable HWC uint8 RGB array, upright, which belongs to the caller.
    A torchvision transform gets a uint8 CHW tensor, an albumentations transform `image=array`, any other callable the
    array. If fastdata's own geometric transforms come first, only the pixels that they need are decoded; they draw from
    Python's `random`.

    Args:
        data: what `fastdata.open` takes, or a reader.
        transform: called with the image; a list is called one after the other.
        target_transform: called with the label.
        transforms: called with image and label, and returns both; it replaces the other two.
        cache: "ram" reads the encoded data into memory now, one copy for this process and all its workers (ranks that
            are started separately have one each).
        fields: return dicts with these names instead: "image", "label", "key", "index", "text" and "annotation" (text
            and JSON, decoded), or the name of a record's field (bytes). None where a record lacks the field.
        exact: never decode a JPEG at 1/2, 1/4 or 1/8 of its size, however much smaller a geometric transform makes it.
        form: what the transform is called with: "array" (H x W x 3 uint8), "tensor" (3 x H x W uint8) or "pil" (a PIL
            image, as torchvision's ImageFolder gives it); None chooses by the library of the transform. Without a
            transform, the form of the sample.
        verify: compare the checksums (CRC-32) of what is read with those in the index; with `cache`, once, while it is
            filled. False does not.
        max_pixels: larger images are refused before they take memory; None: as the reader was opened, else 178,956,970.
            A data set may lower this limit, never raise it.
        image_field: the field that holds the image, if fastdata did not write the data and no name shows it.
        label_field: the field that holds the label, likewise ("json:label": an entry of a JSON field).
        progress: show on stderr how far the cache is.

    Attributes:
        reader: the reader of the data set.
        fields: the names in a sample; None for pairs.
        warnings: (key, message) of images that a decoder warned about but could decode: once per record, the first
            thousand, in this process (each of a DataLoader's workers has its own list).
        root: the path of the data set.
        extensions: the suffixes of the image files that are read from a plain folder.
        classes: class names, by number.
        class_to_idx: class numbers, by name.
        targets: the label of each record, an int64 array (read-only); -1 without one.

    Raises:
        FormatError: `data` is not a data set.
        CacheError: the cache would not fit.
        OptionError: an argument cannot be used, or two exclude each other.
    """

    def __init__(
        self,
        data: Source,
        transform: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        transforms: Callable[..., Any] | None = None,
        cache: Literal["ram"] | None = None,
        *,
        fields: Sequence[str] | None = None,
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
            raise OptionError("give either transforms (called with image and label) or transform/target_transform")
        self.transform, self.target_transform, self.transforms = transform, target_transform, transforms
        self.exact, self._verify, self._max_pixels = flag("exact", exact), flag("verify", verify), max_pixels
        self.form = form
        self._made_for: tuple[Any, Any, Any, bool, Form, SampleDecoder] | None = None
        self._pipelines()  # refuses a transform that cannot be used
        reader = open_source(
            data, image_field=image_field, label_field=label_field, max_pixels=max_pixels, verify=verify
        )
        self._reader = in_memory(reader, cache, verify=verify, progress=progress)
        self._selection = Selection.of(fields, self.reader.manifest)
        self._rules = Rules.of(self.reader.manifest.options, allowed_pixels(self.reader, max_pixels))
        self._samples = SampleReader(self.reader, verify=verify)
        self.classes = list(self.reader.classes)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    @property
    def reader(self) -> Reader:
        return self._reader

    @property
    def warnings(self) -> Remarks:
        return self._samples.remarks

    @property
    def fields(self) -> tuple[str, ...] | None:
        return self._selection.names if self._selection.as_dict else None

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
        # Called only for missing attributes. If ImageFolder has it, the message names what takes its place.
        instead = f"; {_OF_IMAGE_FOLDER[name]}" if name in _OF_IMAGE_FOLDER else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{instead}")

    @property
    def targets(self) -> NDArray[np.int64]:
        return self.reader.labels

    @cached_property
    def samples(self) -> list[tuple[str, int]]:
        """(source path, label) of every record; made on first use, because the list takes memory."""
        return list(zip(self.reader.paths, self.targets.tolist(), strict=True))

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """The same as `samples`."""
        return self.samples

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Any:
        """`(image, label)`: an H x W x 3 uint8 array and an int, or what the transforms return; a dict with `fields`.

        Raises:
            IndexError: the index is out of range; negative indices count from the end.
            DecodeError: the image cannot be decoded; like all errors, it names data set and key.
            FormatError: its bytes are not those that were written.
            LoadError: a transform raised an error.
        """
        decoder = self._decoder
        numbers = [random.random() for _ in range(decoder.pipeline.draws)]
        return self._samples.sample(decoder, index, numbers).as_selected(self._selection)

    @property
    def _decoder(self) -> SampleDecoder:
        """How samples are made. Made again if a transform was replaced, as some programs do."""
        made = self._made_for
        if (
            made is None
            or made[0] is not self.transform
            or made[1] is not self.target_transform
            or made[2] is not self.transforms
            or made[3:5] != (self.exact, self.form)
        ):
            pipeline, joint = self._pipelines()
            decoder = SampleDecoder(
                self._selection, self._rules, pipeline, self.exact, self.form, self.target_transform, joint
            )
            made = self._made_for = (
                self.transform, self.target_transform, self.transforms, self.exact, self.form, decoder
            )  # fmt: skip
        return made[-1]

    def _pipelines(self) -> tuple[Pipeline, TransformCall | None]:
        """The pipeline for images, and the transform that is called with image and label."""
        if self.transforms is None:
            return Pipeline(self.transform, self.form), None
        check_form([self.transforms], self.form)
        return Pipeline(self.transform, self.form), TransformCall(self.transforms, joint=True, form=self.form)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch; torch's DataLoader calls this."""
        return [self[index] for index in indices]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "samples"}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: {len(self)} images, {len(self.classes)} classes", f"path: {self.reader.path}"]
        parts = ("transform", "target_transform", "transforms")
        lines += [f"{name}: {getattr(self, name)!r}" for name in parts if getattr(self, name) is not None]
        return "\n    ".join(lines)
