"""Sample: a record as its consumer gets it, and `SampleDecoder`, which makes it from the bytes of the record.

`ImageDataset`, `ImageStream` and the workers of `DataLoader` each read records in the way that is fastest for them; all
make samples of the bytes with `SampleDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import Rules
from fastdata.codec.encoded import EncodedImage, open_encoded
from fastdata.errors import FastdataError
from fastdata.fields.selection import Selection, Stored
from fastdata.transforms.callables import Form, TransformCall, UserCall, as_form
from fastdata.transforms.pipeline import Pipeline
from fastdata.transforms.render import render_image

if TYPE_CHECKING:
    from fastdata.codec.info import Data
    from fastdata.transforms.plan import Plan


@dataclass(slots=True)
class Sample:
    """One record, decoded and transformed. Values that were not selected are None.

    Attributes:
        index: the number of the record.
        image: H x W x 3 uint8 RGB, upright, contiguous and writable, or what the transforms returned.
        label: the class number, -1 without one, or what `target_transform` returned.
        key: the name of the record.
        fields: further values, by the names in `fields=`. None if the record lacks the field.
    """

    index: int
    image: Any = None
    label: Any = None
    key: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """A value by its name."""
        return self.fields[name] if name in self.fields else getattr(self, name)

    def as_selected(self, selection: Selection) -> tuple[Any, ...] | dict[str, Any]:
        """The selected values, as a tuple or a dict."""
        if selection.as_dict:
            return {name: self[name] for name in selection.names}
        return tuple([self[name] for name in selection.names])


@dataclass(frozen=True)
class SampleDecoder:
    """Makes the values of a sample from the bytes of a record; picklable if its transforms are.

    Attributes:
        selection: which values are made.
        rules: how images are decoded.
        pipeline: the transforms of images.
        exact: never decode a JPEG at a fraction of its size.
        form: the form of an image if no callable follows.
        target_transform: called with the target.
        joint: called with image and target, instead of the pipeline's callables and `target_transform`.
    """

    selection: Selection
    rules: Rules
    pipeline: Pipeline
    exact: bool = False
    form: Form = None
    target_transform: Callable[[Any], Any] | None = None
    joint: TransformCall | None = None

    @property
    def needs_image(self) -> bool:
        """Whether the image is made: it is selected, or `joint` takes it."""
        return self.selection.image or self.joint is not None

    @property
    def needs_plan(self) -> bool:
        """Whether geometry changes a selected field."""
        return any(stored.field.moves for stored in self.selection.stored)

    @property
    def calls_target(self) -> bool:
        """Whether `target_transform` is called."""
        return self.target_transform is not None and self.selection.target in self.selection.names

    def open(self, data: Data) -> EncodedImage:
        """Open an encoded image by the rules of its data set."""
        return open_encoded(data, self.rules)

    def render(
        self,
        image: EncodedImage,
        numbers: Sequence[float],
        notes: list[str],
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """The planned pixels of an image; `numbers` are for the geometric transforms."""
        return render_image(image, self.pipeline, numbers, out=out, exact=self.exact, notes=notes)

    def plan(self, image: EncodedImage, numbers: Sequence[float]) -> Plan:
        """The plan of an image, for the fields that move with it."""
        return self.pipeline.plan(image.size, numbers)

    def value(self, stored: Stored, data: Data | None, plan: Plan | None) -> Any:
        """The value of a record's field; None if the record lacks it.

        Raises:
            FormatError: the bytes do not hold such a value.
        """
        if data is None:
            return None
        try:
            return stored.field.make(data, plan)
        except FastdataError as error:
            raise type(error)(f"field {stored.record_name!r}: {error}") from error

    def transform(self, sample: Sample) -> None:
        """Call the user's transforms on the image and the target."""
        if self.joint is not None:
            sample.image, sample.label = self.joint(sample.image, sample.label)
            return
        if self.selection.image:
            pipeline, image = self.pipeline, sample.image
            sample.image = pipeline.call(image) if pipeline.callables else as_form(image, self.form)
        if self.calls_target:
            sample.label = self.target(sample.label)

    def target(self, label: int) -> Any:
        """What `target_transform` makes of a label.

        Raises:
            LoadError: it raised an error.
        """
        assert self.target_transform is not None
        with UserCall("target_transform"):
            return self.target_transform(label)
