"""Records that others wrote: which of their fields is the image, which the label, and whether all of them have one.

In: records by key and fields, as a scan finds them. Out: the index that our own data have, with each image in front, so
that every reader takes the same field for it. A record without an image, or with several, is an error that counts
it: foreign data are never read as less than they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from fastdata.errors import FormatError
from fastdata.formats.index import IndexBuilder
from fastdata.formats.labels import Fields, Labels, Read, Tally
from fastdata.record import IMAGE_FIELDS

# Files beside a data set that may hold its labels.
_LABEL_FILES = re.compile(
    r".*(?:label|target|annot|cls|class_?id|ground_?truth).*\.(?:csv|tsv|txt|jsonl?|npy|npz|pkl|pickle|parquet|xml|mat)",
    re.IGNORECASE,
)


class ForeignIndex:
    """Collects the records of one data set.

    Args:
        where: its path, for errors.
        noun: what it calls a record: "records" or "entries".
        image_field, label_field: as `fastdata.open` takes them.
        read: gives the bytes of a field.
    """

    def __init__(self, where: str, noun: str, image_field: str | None, label_field: str | None, read: Read) -> None:
        self.builder = IndexBuilder()
        self._where, self._noun, self._given = where, noun, image_field
        self._labels, self._unnamed = Labels(where, label_field, read), label_field is None
        self._images, self._arrays, self._bare = 0, Tally(), Tally()

    def add(self, key: str, fields: Fields) -> None:
        """Add a record, its image first."""
        image = self._image_of(key, fields)
        ordered = {image: fields[image], **fields} if image else fields
        locations = [(blob.file, blob.offset) for blob in ordered.values()]
        label = self._labels.of(key, fields)
        self.builder.add_scanned(key, "", label, list(ordered), locations, [blob.size for blob in ordered.values()])

    def add_other(self, what: str) -> None:
        """Count what is no record at all."""
        self._bare.add(what)

    def add_others(self, others: Tally) -> None:
        """Count several of them."""
        self._bare.count += others.count
        self._bare.first = self._bare.first or others.first

    def finish(self, folders: Sequence[str]) -> IndexBuilder:
        """The index.

        Args:
            folders: where a file of labels may lie beside the data.

        Raises:
            FormatError: records without an image or with several, labels that cannot be read.
        """
        if self._images or self._given:
            self._refuse(self._arrays, self._bare)
        else:
            self._images = self._arrays.count  # arrays are images where there are no others
            self._refuse(self._bare)
        if not self._labels.check() and len(self.builder) and self._unnamed:
            self._refuse_label_files(folders)
        return self.builder

    def _image_of(self, key: str, fields: Fields) -> str:
        """The field that holds a record's image, "" where none does."""
        if self._given is not None:
            images = [self._given] if self._given in fields else []
        else:
            images = [name for name in fields if name in IMAGE_FIELDS and name != "npy"]
        if len(images) > 1:
            raise FormatError(
                f"{self._where}: record {key!r} has several images: {', '.join(map(repr, images))}; image_field= names "
                f"the one to read, as in image_field={images[0]!r}"
            )
        if images:
            self._images += 1
            return images[0]
        tally = self._arrays if "npy" in fields and self._given is None else self._bare
        tally.add(f"{key!r} with the fields {', '.join(map(repr, fields))}")
        return "npy" if tally is self._arrays else ""

    def _refuse(self, *tallies: Tally) -> None:
        count = sum(tally.count for tally in tallies)
        if not count:
            return
        first = next(tally.first for tally in tallies if tally.count)
        total = self._images + count
        some = f"{count} of {total} {self._noun} with" if self._images else f"{total} {self._noun}, none of them with"
        what = (
            "an image that can be read" if self._given is None else f"the field {self._given!r} that image_field names"
        )
        if self._images:
            what = what.replace("an image", "no image").replace("the field", "no field")
        raise FormatError(f"{self._where}: {some} {what}, such as {first}; {self._cure()}")

    def _cure(self) -> str:
        if self._given is not None:
            return "name a field that all of them have, or leave the others out of the data"
        return (
            "a field of an image is named jpg, png, webp or the like, image_field= names any other; leave out what is "
            "not a record, or convert the images with `fastdata convert`"
        )

    def _refuse_label_files(self, folders: Sequence[str]) -> None:
        for name in (name for folder in folders for name in _listed(folder)):
            if _LABEL_FILES.fullmatch(name):
                raise FormatError(
                    f"{self._where}: no record has a label, and {name!r} beside the data, which is not read, may hold "
                    "them: write them as `cls` into the data; label_field='' reads the data without labels"
                )


def _listed(folder: str) -> list[str]:
    """The names in a folder; none where it may be read, but not listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
