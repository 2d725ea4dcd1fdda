"""Foreign records: which field is the image, which is the label, and whether every record has one.

In: records by key and fields, as a scan finds them. Out: an index like that of our own data, with each image first, so
that every reader takes the same field as the image. Records without an image, or with several, are an error that
states how many there are: no part of foreign data is left out silently.
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
    """Collect the records of one data set.

    Args:
        where: its path, for errors.
        noun: what errors call its records: "records" or "entries".
        image_field, label_field: as `fastdata.open` takes them.
        read: returns the bytes of a field.
    """

    def __init__(self, where: str, noun: str, image_field: str | None, label_field: str | None, read: Read) -> None:
        self.builder = IndexBuilder()
        self._where, self._noun, self._given = where, noun, image_field
        self._labels, self._unnamed = Labels(where, label_field, read), label_field is None
        self._images, self._arrays, self._bare = 0, Tally(), Tally()

    def add(self, key: str, fields: Fields) -> None:
        """Add a record, with its image as the first field."""
        image = self._image_of(key, fields)
        ordered = {image: fields[image], **fields} if image else fields
        locations = [(blob.file, blob.offset) for blob in ordered.values()]
        label = self._labels.of(key, fields)
        self.builder.add_scanned(key, "", label, list(ordered), locations, [blob.size for blob in ordered.values()])

    def add_other(self, what: str) -> None:
        """Count something that is not a record."""
        self._bare.add(what)

    def add_others(self, others: Tally) -> None:
        """Count several of these."""
        self._bare.count += others.count
        self._bare.first = self._bare.first or others.first

    def finish(self, folders: Sequence[str]) -> IndexBuilder:
        """Return the index.

        Args:
            folders: the folders that may hold a file of labels beside the data.

        Raises:
            FormatError: records without an image or with several, labels that cannot be read.
        """
        if self._images or self._given:
            self._refuse(self._arrays, self._bare)
        else:
            self._images = self._arrays.count  # arrays are images if there are no others
            self._refuse(self._bare)
        if not self._labels.check() and len(self.builder) and self._unnamed:
            self._refuse_label_files(folders)
        return self.builder

    def _image_of(self, key: str, fields: Fields) -> str:
        """The field that holds a record's image, "" if none does."""
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
        raise FormatError(f"{self._where}: {some} {what}, such as {first}; {self._advice()}")

    def _advice(self) -> str:
        if self._given is not None:
            return "name a field that all of them have, or remove the others from the data"
        return (
            "a field of an image is named jpg, png, webp or the like, image_field= names any other; remove what is "
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
    """The names in a folder; none if it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
