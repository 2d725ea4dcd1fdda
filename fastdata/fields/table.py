"""The table of fields. A kind of value that is added here is converted, stored, loaded and batched from then on."""

from __future__ import annotations

from typing import Any

from fastdata.fields.base import Field
from fastdata.fields.image import ImageField
from fastdata.fields.plain import BytesField, ClassField, JsonField, TextField

# Name of a value in samples -> its field. No name here is a usual name of a record's field.
FIELDS: dict[str, Field[Any]] = {
    "image": ImageField(),
    "label": ClassField(),
    "text": TextField(),
    "annotation": JsonField(),
}


def field_of(record_name: str) -> Field[Any]:
    """The field for a name in a record, such as `txt` or `caption.txt`; `BytesField` if the table has none."""
    parts = record_name.split(".")
    for first in range(len(parts)):  # the longest suffix counts
        suffix = ".".join(parts[first:])
        for field in FIELDS.values():
            if suffix in field.suffixes and (first == 0 or field.repeats):
                return field
    return BytesField(record_name)
