"""Selection: what of a record its consumer wants, by the names given as `fields`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastdata.checks import choice, refuse
from fastdata.fields.base import Field
from fastdata.fields.plain import BytesField
from fastdata.fields.table import FIELDS
from fastdata.manifest import Manifest

# What a sample has of every record, whatever fields it was stored with. All but the image stand in the index.
ALWAYS = ("image", "label", "key", "index")


class Stored(NamedTuple):
    """A record's field that is read for a sample, beside the image.

    Attributes:
        name: what it is called in samples.
        record_name: what it is called in records.
        field: how its bytes become a value.
    """

    name: str
    record_name: str
    field: Field[Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a record its consumer wants.

    Attributes:
        names: what samples hold, in this order.
        as_dict: samples are dicts by name; else tuples.
        target: the name of what models learn to predict.
        stored: the record fields to be read, beside the image.
    """

    names: tuple[str, ...]
    as_dict: bool
    target: str
    stored: tuple[Stored, ...]

    @classmethod
    def of(cls, fields: Sequence[str] | None, manifest: Manifest) -> Selection:
        """What `fields` asks for.

        Args:
            fields: a field's name ("image", "label", "text", ...) for the decoded value, or the name of a record's
                field ("txt", "mask.png") for its bytes. None: the pair of image and target.
            manifest: says which fields the records have.

        Raises:
            OptionError: not a sequence of names, or a name that there is not.
        """
        names = ("image", manifest.target) if fields is None else _names(fields)
        there = _stored(manifest)
        for name in names:
            if name not in ALWAYS and name not in there:
                choice("each of fields", name, (*ALWAYS, *there))
        stored = tuple(there[name] for name in names if name in there)
        return cls(names, fields is not None, manifest.target, stored)

    @property
    def image(self) -> bool:
        """Whether the image is wanted."""
        return "image" in self.names


def _stored(manifest: Manifest) -> dict[str, Stored]:
    """What can be read of the records beside the image, by name. A field's name goes before a record's own."""
    there = {}
    for name, field in FIELDS.items():
        record_name = next((suffix for suffix in field.suffixes if suffix in manifest.fields), None)
        if record_name is not None:
            there[name] = Stored(name, record_name, field)
    for name in manifest.fields:
        there.setdefault(name, Stored(name, name, BytesField(name)))
    return {name: stored for name, stored in there.items() if name not in ALWAYS}


def _names(fields: Any) -> tuple[str, ...]:
    if isinstance(fields, str) or not fields or not all(isinstance(name, str) for name in fields):
        refuse("fields", "a sequence of names ('image', 'label', 'key', 'index', or a record's field)", fields)
    return tuple(dict.fromkeys(fields))
