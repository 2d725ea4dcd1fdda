"""Selection: the values of a sample, by the names given as `fields`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastdata.checks import choice, refuse
from fastdata.fields.base import Field
from fastdata.fields.plain import BytesField
from fastdata.fields.table import FIELDS
from fastdata.manifest import Manifest

# Values that every sample has, whatever fields its record has. All but the image are in the index.
ALWAYS = ("image", "label", "key", "index")


class Stored(NamedTuple):
    """A record's field that is read for a sample, besides the image.

    Attributes:
        name: its name in samples.
        record_name: its name in records.
        field: how its bytes are decoded.
    """

    name: str
    record_name: str
    field: Field[Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """The values of a sample that its consumer asked for.

    Attributes:
        names: the values, in this order.
        as_dict: samples are dicts by name; else tuples.
        target: the name of the value that models learn to predict.
        stored: the record fields to read, besides the image.
    """

    names: tuple[str, ...]
    as_dict: bool
    target: str
    stored: tuple[Stored, ...]

    @classmethod
    def of(cls, fields: Sequence[str] | None, manifest: Manifest) -> Selection:
        """The selection of the values named in `fields`.

        Args:
            fields: a field's name ("image", "label", "text", ...) for the decoded value, or the name of a record's
                field ("txt", "mask.png") for its bytes. None: the pair of image and target.
            manifest: lists the fields of the records.

        Raises:
            OptionError: not a sequence of names, or an unknown name.
        """
        names = ("image", manifest.target) if fields is None else _names(fields)
        available = _stored(manifest)
        for name in names:
            if name not in ALWAYS and name not in available:
                choice("each of fields", name, (*ALWAYS, *available))
        stored = tuple(available[name] for name in names if name in available)
        return cls(names, fields is not None, manifest.target, stored)

    @property
    def image(self) -> bool:
        """Whether the image is selected."""
        return "image" in self.names


def _stored(manifest: Manifest) -> dict[str, Stored]:
    """The fields that can be read besides the image, by name. A field's name hides a record's field of that name."""
    available = {}
    for name, field in FIELDS.items():
        record_name = next((suffix for suffix in field.suffixes if suffix in manifest.fields), None)
        if record_name is not None:
            available[name] = Stored(name, record_name, field)
    for name in manifest.fields:
        available.setdefault(name, Stored(name, name, BytesField(name)))
    return {name: stored for name, stored in available.items() if name not in ALWAYS}


def _names(fields: Any) -> tuple[str, ...]:
    if isinstance(fields, str) or not fields or not all(isinstance(name, str) for name in fields):
        refuse("fields", "a sequence of names ('image', 'label', 'key', 'index', or a record's field)", fields)
    return tuple(dict.fromkeys(fields))
