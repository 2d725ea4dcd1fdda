"""Manifest: a data set's description of itself, as strict JSON, written last.

A data set is complete if its manifest exists and every file it lists has exactly the length it states. A manifest holds
no time, host, user, absolute path or number of workers, so equal input gives equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastdata.errors import FormatError

MANIFEST_NAME = "manifest.json"
# Incremented when the layout of any format changes in a way that older readers would misread.
LAYOUT_VERSION = 1
_MARK = "fastdata"
# How a manifest ends.
_SEAL = b',\n "sha256": "%s"\n}'
_SEAL_BYTES = len(_SEAL % bytes(64))


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set: its name (relative, `/` between parts; "" for the file itself) and exact length.

    `head_sha256` is the hash of the first pages if they must never change (LMDB's two meta pages), else "".
    `rest_sha256` is the hash of everything around the blobs if it has no other checksum (LMDB's tree), else "".
    """

    name: str
    bytes: int
    head_sha256: str = ""
    rest_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A data set's description of itself.

    Attributes:
        format: "lmdb", "hdf5", "tar" or "folder".
        count: the number of records.
        fields: every field name that occurs, in the order of the index's field codes.
        classes: class names by number; empty where there are none.
        fingerprint: hash of keys, field names and checksums in order: equal for equal records in all formats; "" for
            foreign data.
        options: the conversion options that made it; empty for `fastdata.create`.
        files: the data files; a single one without a name for a format of one file; empty for foreign data.
        index_sha256: hash of the index, "" for foreign data.
        version: the layout version.
    """

    format: str
    count: int
    fields: tuple[str, ...]
    classes: tuple[str, ...] = ()
    fingerprint: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[DataFile, ...] = ()
    index_sha256: str = ""
    version: int = LAYOUT_VERSION

    @property
    def target(self) -> str:
        """The name of the field that models learn to predict, which samples hold beside the image by default."""
        return "label"

    def to_json(self) -> bytes:
        """The manifest as JSON in ASCII, the same bytes for the same values.

        Its last entry, `sha256`, is the hash of this same text without that entry, so that no name or number in it can
        change unnoticed.

        Names that are not UTF-8 appear as lone surrogate escapes, as Python's own file names have them.
        """
        value = {
            _MARK: self.version,
            "format": self.format,
            "count": self.count,
            "fields": list(self.fields),
            "classes": list(self.classes),
            "fingerprint": self.fingerprint,
            "options": dict(self.options),
            "files": [
                {name: value for name, value in dataclasses.asdict(file).items() if value != ""} for file in self.files
            ],
            "index_sha256": self.index_sha256,
        }
        return _dump(value | {"sha256": hashlib.sha256(_dump(value)).hexdigest()})

    @classmethod
    def from_json(cls, blob: bytes, where: str) -> Manifest:
        """Parse and check a manifest; `where` names its file in errors.

        Raises:
            FormatError: not JSON, not a manifest, of a newer layout, or with values that do not fit.
        """
        try:
            value = json.loads(blob, parse_constant=_refuse_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{where}: the manifest is not valid JSON ({error}); convert the data again") from error
        if not isinstance(value, dict) or _MARK not in value:
            raise FormatError(f"{where}: not a fastdata manifest")
        version = value[_MARK]
        if type(version) is not int or version != LAYOUT_VERSION:
            raise FormatError(
                f"{where}: layout version {version!r}; this fastdata reads version {LAYOUT_VERSION}: "
                "upgrade fastdata, or convert the data again"
            )
        if not _is_sealed(blob):
            raise FormatError(f"{where}: the manifest was changed after it was written; convert the data again")
        try:
            return cls(
                format=_typed(value, "format", str),
                count=_typed(value, "count", int),
                fields=tuple(_strings(value, "fields")),
                classes=tuple(_strings(value, "classes")),
                fingerprint=_typed(value, "fingerprint", str),
                options=_typed(value, "options", dict),
                files=tuple(_data_file(entry) for entry in _typed(value, "files", list)),
                index_sha256=_typed(value, "index_sha256", str),
                version=version,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{where}: damaged manifest ({error}); convert the data again") from error


def is_manifest(blob: bytes) -> bool:
    """Whether these bytes are a manifest of ours, maybe a damaged one (other tools also write a `manifest.json`)."""
    try:
        value = json.loads(blob)
    except (ValueError, RecursionError):
        return f'"{_MARK}"'.encode() in blob[:64]
    return isinstance(value, dict) and _MARK in value


def _dump(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode("ascii") + b"\n"


def _is_sealed(blob: bytes) -> bool:
    """Whether the last entry is the hash of the rest of the text.

    The text itself is hashed, not its values serialised again: for some values that takes far more time and memory.
    """
    text = blob.rstrip()
    rest = hashlib.sha256(text[:-_SEAL_BYTES])
    rest.update(b"\n}\n")
    return text.endswith(_SEAL % rest.hexdigest().encode("ascii"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text} is too large for a number")
    return number


def _typed(value: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    item: Any = value[name]
    if not isinstance(item, kind) or isinstance(item, bool) or (kind is int and item < 0):
        raise TypeError(f"{name!r} is {item!r:.200}")
    return item


def _strings(value: Mapping[str, Any], name: str) -> list[str]:
    items: list[str] = _typed(value, name, list)
    if not all(isinstance(item, str) for item in items):
        raise TypeError(f"{name!r} must hold strings")
    return items


def _data_file(entry: Mapping[str, Any]) -> DataFile:
    name: str = _typed(entry, "name", str) if "name" in entry else ""
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"file name {name!r:.200} leads out of the data set")
    hashes = {kind: _typed(entry, kind, str) for kind in ("head_sha256", "rest_sha256") if kind in entry}
    return DataFile(name, _typed(entry, "bytes", int), **hashes)


class Fingerprint:
    """The running hash of keys, field names and checksums, in order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, key: bytes, checksums: Mapping[str, int]) -> None:
        """Add one record: its key and the CRC-32 of each field, by field name order."""
        parts = [b"%d:%s" % (len(key), key)]
        parts += [b"%s=%08x" % (name.encode("ascii"), checksums[name]) for name in sorted(checksums)]
        self._hash.update(b" ".join(parts) + b"\n")

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
