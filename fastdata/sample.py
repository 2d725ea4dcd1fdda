"""Sample: what a record becomes for its consumer, and the one way in which its bytes become that.

`ImageDataset`, `ImageStream` and the workers of `DataLoader` read records in ways of their own, each the fastest for
its purpose; what happens to the bytes then is decided here.
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
from fastdata.transforms.callables import Form, PictureCall, UserCall, as_form
from fastdata.transforms.pipeline import Pipeline
from fastdata.transforms.render import render_image

if TYPE_CHECKING:
    from fastdata.codec.info import Data
    from fastdata.transforms.plan import Plan


@dataclass(slots=True)
class Sample:
    """One record, decoded and transformed. What its consumer did not ask for is None.

    Attributes:
        index: the number of the record.
        image: H x W x 3 uint8 RGB, upright, contiguous and writable, or what transforms made of it.
        label: the class number, -1 without one, or what a target_transform made of it.
        key: the name of the record.
        fields: further values, by the names in `fields=`. None where the record lacks the field.
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
        """What the consumer gets: the values that it asked for, as a tuple or a dict."""
        if selection.as_dict:
            return {name: self[name] for name in selection.names}
        return tuple([self[name] for name in selection.names])


@dataclass(frozen=True)
class SampleDecoder:
    """Makes the values of a sample from the bytes of a record; picklable wherever its transforms are.

    Attributes:
        selection: which values.
        rules: how images are decoded.
        pipeline: what is done with images.
        exact: never decode a JPEG at a fraction of its size.
        form: what an image is that no callable follows.
        target_transform: called with the target.
        joint: called with image and target, in place of the pipeline's callables and `target_transform`.
    """

    selection: Selection
    rules: Rules
    pipeline: Pipeline
    exact: bool = False
    form: Form = None
    target_transform: Callable[[Any], Any] | None = None
    joint: PictureCall | None = None

    @property
    def needs_image(self) -> bool:
        """Whether the image is to be made: for its own sake, or for `joint`."""
        return self.selection.image or self.joint is not None

    @property
    def needs_plan(self) -> bool:
        """Whether a field moves with the image."""
        return any(stored.field.moves for stored in self.selection.stored)

    @property
    def calls_target(self) -> bool:
        """Whether `target_transform` is called."""
        return self.target_transform is not None and self.selection.target in self.selection.names

    def open(self, data: Data) -> EncodedImage:
        """An encoded image, opened by the rules of its data set."""
        return open_encoded(data, self.rules)

    def render(
        self,
        image: EncodedImage,
        numbers: Sequence[float],
        notes: list[str],
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """The planned pixels of an image; `numbers` are what the geometric transforms draw."""
        return render_image(image, self.pipeline, numbers, out=out, exact=self.exact, notes=notes)

    def plan(self, image: EncodedImage, numbers: Sequence[float]) -> Plan:
        """The plan of an image, for what moves with it."""
        return self.pipeline.plan(image.size, numbers)

    def value(self, stored: Stored, data: Data | None, plan: Plan | None) -> Any:
        """The value of a record's field; None where the record lacks it.

        Raises:
            FormatError: the bytes hold no such value.
        """
        if data is None:
            return None
        try:
            return stored.field.make(data, plan)
        except FastdataError as error:
            raise type(error)(f"field {stored.record_name!r}: {error}") from error

    def transform(self, sample: Sample) -> None:
        """Call what the user gave, on the image and the target."""
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
