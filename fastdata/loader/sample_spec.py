"""SampleSpec: what a worker needs to know to make samples."""

from __future__ import annotations

from dataclasses import dataclass

from fastdata.formats.locations import BlobSource
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import FIELD_COLUMNS, IMAGE_COLUMNS
from fastdata.sample import SampleDecoder
from fastdata.transforms.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What is needed to make the samples of a loader; picklable wherever its parts are.

    Attributes:
        decoder: how samples are made of bytes.
        source: what reads the encoded images by their locations.
        seed: the loader's seed.
        skip: samples that fail will be replaced, so that the others of their batch are made, too.
        views: how many versions of a record a sample is made of.
        fields: what reads the stored fields that are wanted, in the order of the decoder's selection.
    """

    decoder: SampleDecoder
    source: BlobSource
    seed: int
    skip: bool = False
    views: int = 1
    fields: tuple[BlobSource, ...] = ()

    @property
    def image(self) -> bool:
        """Whether samples hold an image."""
        return self.decoder.needs_image

    @property
    def values(self) -> bool:
        """Whether samples hold what is made of the record beside its image."""
        return bool(self.fields) or self.decoder.calls_target

    @property
    def calls(self) -> bool:
        """Whether functions of the user's are called."""
        return self.decoder.calls_target or (self.image and bool(self.pipeline.callables))

    @property
    def columns(self) -> int:
        """Numbers in the row of a sample."""
        return IMAGE_COLUMNS + FIELD_COLUMNS * len(self.fields) + self.decoder.calls_target

    @property
    def pipeline(self) -> Pipeline:
        """What is done with the images."""
        return self.decoder.pipeline

    @property
    def layout(self) -> Layout | None:
        """The layout of the samples, None where only a sample can tell."""
        size = self.pipeline.size
        return None if size is None or self.pipeline.callables else Layout.image(*size, self.views)
