"""Class numbers of foreign records: from `cls`, or from the field that `label_field` names.

In: each record's fields, while its data set is scanned. Out: its class number, -1 if there is none. A label that is not
understood must not be ignored silently, and a model trained without it; so anything that may be a label is an error
that names the field, and the argument that reads it or ignores it. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import FormatError, OptionError
from fastdata.record import IMAGE_FIELDS, class_number

# The `label_field` for data without labels.
NO_LABELS = ""

# Names of fields and of JSON keys that suggest a label: compared in lower case, with letters only.
_NAMES = frozenset(
    name + suffix
    for name in ("label", "labels", "cls", "class", "category", "target", "classlabel")
    for suffix in ("", "id", "ids", "idx", "index", "no", "num", "number", "name")
) | {"classes", "targets", "categories", "groundtruth", "gt", "annotation"}
_SAYS_LABEL = re.compile(rb"label|cls|class|categor|target|annotation|ground_?truth|\"gt\"", re.IGNORECASE)
_JSON = frozenset(("json", "jsn"))
# Serialised values; a class number in them cannot be recognized.
_SERIALISED = frozenset(("pyd", "pickle", "pkl", "p", "pt", "pth", "mp", "msgpack", "cbor", "ten", "tb", "npz"))
# Tables and descriptions that may hold a label under its name; they are not read.
_DESCRIBED = frozenset(("xml", "yaml", "yml", "toml", "csv", "tsv", "jsonl"))
# Integers that are not class numbers, by webdataset's names.
_COUNTS = frozenset(("index", "inx", "idx", "count", "width", "height"))
# The largest sizes of a class number, of an array that holds one, and of JSON that is parsed, in bytes.
_MOST_NUMBER, _MOST_ARRAY, _MOST_JSON = 32, 256, 1 << 22
_SCALAR = re.compile(rb"'descr': *'[<>|=][iu]\d'.*'shape': *\((?:1,)?\)")
# How deep JSON is searched, how many items of a list, and how many possible labels are kept: one is enough to report.
_MOST_DEPTH, _MOST_ITEMS, _MOST_SUSPECTS = 4, 4, 16


class Blob(NamedTuple):
    """The location of a field."""

    file: int
    offset: int
    size: int


Fields = Mapping[str, Blob]
Read = Callable[[Blob], bytes]


class Tally:
    """A count, and the first item that was counted."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, first: str) -> None:
        self.first = self.first or first
        self.count += 1

    def of(self, noun: str) -> str:
        """ "1 record", "2 records"."""
        return f"{self.count} {noun}" if self.count == 1 else f"{self.count} {noun}s"


class Labels:
    """The labels of one data set.

    Args:
        where: its path, for errors.
        label_field: what `fastdata.open` was given; None for `cls`, and an error where that leaves a label out.
        read: returns the bytes of a field.

    Raises:
        OptionError: `label_field` does not name a field.
    """

    def __init__(self, where: str, label_field: str | None, read: Read) -> None:
        self._where, self._given, self._read = where, label_field, read
        self._field, colon, path = (label_field or "cls").partition(":")
        self._path = path.split(".") if colon else []
        if not self._field or (colon and not all(self._path)):
            raise OptionError(
                f"label_field {label_field!r}: a field's name such as 'cls', a value within JSON such as 'json:label', "
                "or '' where there are no labels"
            )
        self._wrong, self._without, self._found = Tally(), Tally(), 0
        self._suspects: dict[str, Tally] = {}
        self._numbers: dict[str, Tally] = {}
        self._texts: set[str] = set()

    def of(self, key: str, fields: Fields) -> int:
        """The class number of a record, -1 if it has none; `check` reports at the end what is wrong."""
        if self._given == NO_LABELS:
            return -1
        blob = fields.get(self._field)
        if blob is None:
            if self._given is None:
                for suspect in self._may_be_labels(key, fields):
                    if suspect in self._suspects or len(self._suspects) < _MOST_SUSPECTS:
                        self._suspects.setdefault(suspect, Tally()).add(key)
            self._without.add(key)
            return -1
        try:
            label = self._number(blob)
        except ValueError as error:
            self._wrong.add(f"record {key!r}: {error}")
            return -1
        self._found += 1
        return label

    def check(self) -> bool:
        """Whether there are any labels.

        Raises:
            FormatError: some cannot be read, or a field that was not read may hold labels.
        """
        if self._wrong.count:
            raise FormatError(
                f"{self._where}: {self._wrong.of('label')} without an integer ({self._wrong.first}); label_field= "
                "names where the class number is, such as 'json:label'; label_field='' reads the data without labels"
            )
        if self._given and self._without.count:
            raise FormatError(
                f"{self._where}: {self._without.of('record')} without the field {self._field!r}, which label_field "
                f"names, such as {self._without.first!r}"
            )
        suspects = {**self._suspects, **{n: t for n, t in self._numbers.items() if n not in self._texts}}
        for name, tally in suspects.items():
            readable = ":" in name or name.rpartition(".")[2] not in _SERIALISED | _DESCRIBED | _JSON | {"npy"}
            advice = f"label_field={name!r} reads it" if readable else "write the class numbers as `cls`, in ASCII"
            raise FormatError(
                f"{self._where}: {tally.of('record')} without the field 'cls', with what may be the label in "
                f"{name!r}, such as {tally.first!r}: {advice}; label_field='' reads the data without labels"
            )
        return self._found > 0

    def _number(self, blob: Blob) -> int:
        """The class number that the named field holds; ValueError says what it holds instead."""
        if blob.size > _MOST_JSON:
            raise ValueError(f"field {self._field!r} has {blob.size} bytes; at most {_MOST_JSON} are read")
        data = self._read(blob)
        if not self._path:
            number = class_number(data)
            if number is None:
                raise ValueError(f"field {self._field!r} is {data[:40]!r}")
            return number
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"field {self._field!r} is not valid JSON") from error
        for name in self._path:
            value = _entry(value, name)
        number = value if type(value) is int and abs(value) < 1 << 63 else None
        if isinstance(value, str):
            number = class_number(value.encode("utf-8", "replace"))
        if number is None:
            raise ValueError(f"{'.'.join(self._path)!r} in field {self._field!r} is {_short(value)}")
        return number

    def _may_be_labels(self, key: str, fields: Fields) -> Iterator[str]:
        """The fields of a record that may hold its label, as `label_field` would name them."""
        for name, blob in fields.items():
            kind = name.rpartition(".")[2]
            if kind in IMAGE_FIELDS and kind != "npy":
                continue
            if any(_says_label(part) for part in name.split(".")) or kind in _SERIALISED:
                yield name
            elif kind in _DESCRIBED or (kind in _JSON and blob.size > _MOST_JSON):
                if _SAYS_LABEL.search(self._read(blob._replace(size=min(blob.size, _MOST_JSON)))):
                    yield name
            elif kind in _JSON:
                yield from (f"{name}:{path}" for path in _labels_within(self._read(blob)))
            elif kind == "npy":
                if blob.size <= _MOST_ARRAY and _SCALAR.search(self._read(blob)):
                    yield name
            elif blob.size > _MOST_NUMBER or class_number(self._read(blob)) is None:
                self._texts.add(name)  # some captions are numbers; if all are, they are labels
            elif name not in _COUNTS:
                self._numbers.setdefault(name, Tally()).add(key)


def named_labels(
    where: str, label_field: str | None, keys: Sequence[str], rows: Iterable[Fields], read: Read
) -> NDArray[np.int64]:
    """The labels that `label_field` names, of records that are known already.

    Raises:
        FormatError: some cannot be read.
    """
    labels = Labels(where, label_field, read)
    numbers = np.array([labels.of(key, fields) for key, fields in zip(keys, rows, strict=True)], np.int64)
    labels.check()
    numbers.flags.writeable = False
    return numbers


def _says_label(name: str) -> bool:
    return re.sub(r"[^a-z]", "", name.lower()) in _NAMES


def _labels_within(blob: bytes) -> Iterator[str]:
    """The paths in a JSON object to values that are named like labels: names joined by dots."""
    if not _SAYS_LABEL.search(blob):
        return
    try:
        value = json.loads(blob)
    except (ValueError, RecursionError):
        return  # not JSON: `verify` reports it
    pending: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, list):
            value = {str(number): item for number, item in enumerate(value[:_MOST_ITEMS])}
        for name, inner in value.items() if isinstance(value, dict) else ():
            if _says_label(name) and not isinstance(inner, dict) and inner is not None:
                yield ".".join((*path, name))
            elif isinstance(inner, (dict, list)) and len(path) < _MOST_DEPTH:
                pending.append(((*path, name), inner))


def _entry(value: Any, name: str) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    raise ValueError(f"there is no {name!r} in {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, (dict, list)) else f"{type(value).__name__} {list(value)[:8]!r}"
    return text if len(text) <= 60 else text[:60] + "..."
