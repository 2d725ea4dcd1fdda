"""Record: the value that conversion, formats and loading exchange; and the rule for its key.

A record is a key and named blobs, as in WebDataset: field `jpg` of record `cat/1` is the member `cat/1.jpg` of a tar
and the LMDB key `cat/1.jpg`. One rule makes keys from paths in every format (`key_from_path`), and it can be reversed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdata.errors import RecordError

if TYPE_CHECKING:
    from typing import TypeGuard

# Key, dot and field together are an LMDB key, and LMDB takes 511 bytes at most.
MAX_NAME_BYTES = 511
# Far more than any system allows; reading a path from untrusted data takes no more memory than this.
MAX_PATH_BYTES = 1 << 20
# Conversion reserves this much for the dot and any field that may be added, so a key never depends on the fields.
_FIELD_RESERVE = 31
MAX_KEY_BYTES = MAX_NAME_BYTES - _FIELD_RESERVE

# Fields that hold an image; a record's image is the first of them. Foreign tars spell some of them differently
# (the last row).
IMAGE_FIELDS = frozenset((
    "jpg", "png", "webp", "npy", "bmp", "gif", "tif", "avif", "jp2", "ppm", "pgm", "pbm", "pnm", "ico", "tga",
    "jpeg", "jpe", "jfif", "tiff",
))  # fmt: skip

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/ ,;=+@()[]{}!#$&^~'")
# Keys that need no escapes: plain parts between single slashes, no leading `__`.
_SIMPLE = re.compile(rb"(?!__)(?:[A-Za-z0-9_\- ,;=+@()\[\]{}!#$&^~']+(?:/(?!\Z)|\Z))+")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
# Fields that start with `__` (`__key__`, `__url__`) are webdataset's own.
_FIELD = re.compile(r"(?!__)[a-z0-9_-]+(\.[a-z0-9_-]+)*")
# LMDB cannot hold more in one value.
MAX_BLOB_BYTES = 2**32 - 1
# At most as many digits as always fit into int64.
_LABEL = re.compile(rb"\s*[+-]?[0-9]{1,18}\s*")


@dataclass(frozen=True, slots=True)
class Record:
    """A key and its named blobs.

    Attributes:
        key: the record's name, which follows the key rule (`key_from_path`).
        fields: field name -> bytes-like, the image first. `cls` is the class number in ASCII.
        path: the source's path below the converted folder, unchanged; "" if there is none. Not part of the fingerprint.
        image: the field that was named as the image (`image_field`) when the data were opened; "" for the first field
            with a usual name. Only a record in which these are the same can be written.
    """

    key: str
    fields: Mapping[str, bytes]
    path: str = ""
    image: str = ""

    @property
    def label(self) -> int:
        """The class number, -1 if there is no `cls` field.

        Raises:
            RecordError: `cls` is not an integer.
        """
        return parse_label(self.key, self.fields.get("cls"))

    @property
    def image_field(self) -> str:
        """The name of the field that holds the image.

        Raises:
            RecordError: there is none.
        """
        for name in self.fields:
            if name == self.image if self.image else name in IMAGE_FIELDS:
                return name
        raise RecordError(f"record {self.key!r} has no image: its fields are {sorted(self.fields)}")


def parse_label(key: str, blob: bytes | memoryview | None) -> int:
    """The class number that a `cls` field holds, -1 if there is no field."""
    if blob is None:
        return -1
    number = class_number(blob)
    if number is None:
        raise RecordError(f"record {key!r}: field 'cls' must be an integer in ASCII, not {bytes(blob)[:40]!r}")
    return number


def class_number(blob: bytes | memoryview) -> int | None:
    """The integer in ASCII that a field holds; None if it holds anything else."""
    return int(bytes(blob)) if _LABEL.fullmatch(blob) else None


def key_from_path(path: str, *, keep_suffix: bool = False) -> str:
    """The key of a source path relative to the converted folder, `/` between its parts.

    The last suffix is dropped unless `keep_suffix`. Every byte outside ``A-Za-z0-9_-/ ,;=+@()[]{}!#$&^~'`` and valid
    UTF-8 beyond ASCII is percent-escaped, and so are a leading `__`, a leading or trailing `/` and the second slash
    of `//`, so that keys are distinct, can be reversed (`path_from_key`) and are read correctly by plain webdataset.
    A key longer than 480 bytes is cut and ends in `~` and a hash of the whole.

    >>> key_from_path("cat/1.5m view.JPG"), key_from_path("__meta__/x.png"), key_from_path("a.png", keep_suffix=True)
    ('cat/1%2E5m view', '%5F_meta__/x', 'a%2Epng')
    """
    if not keep_suffix:
        head, slash, name = path.rpartition("/")
        stem, dot, _ = name.rpartition(".")
        path = head + slash + (stem if dot and stem else name)
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise RecordError(f"path {path!r} is not a file name: it holds a lone surrogate") from error
    if not raw:
        raise RecordError("an empty path gives no key")
    return _shorten(_escape(raw))


def _escape(raw: bytes) -> bytes:
    if _SIMPLE.fullmatch(raw):  # 0.5 us instead of 10, for nearly every name
        return raw
    out = bytearray()
    for char in raw.decode("utf-8", "surrogateescape"):
        blob = char.encode("utf-8", "surrogateescape")
        plain = blob[0] in _PLAIN if len(blob) == 1 else True
        out += blob if plain else b"%%%02X" % blob[0]
    key = bytes(out)
    if key.startswith(b"__"):
        key = b"%5F" + key[1:]
    if key.startswith(b"/"):
        key = b"%2F" + key[1:]
    key = key.replace(b"//", b"/%2F")
    while b"//" in key:  # an odd number of slashes leaves one pair
        key = key.replace(b"//", b"/%2F")
    if key.endswith(b"/"):
        key = key[:-1] + b"%2F"
    return key


def _shorten(key: bytes) -> str:
    if len(key) <= MAX_KEY_BYTES:
        return key.decode("utf-8")
    tail = b"~" + hashlib.sha256(key).hexdigest()[:16].encode("ascii")
    head = key[: MAX_KEY_BYTES - len(tail)]
    head = re.sub(rb"%[0-9A-F]?\Z", b"", head)  # no half escape at the cut
    return head.decode("utf-8", "ignore").rstrip("/") + tail.decode("ascii")


def path_from_key(key: str) -> str:
    """The path that a key stands for, without its suffix: the reverse of `key_from_path` (except for shortened keys).

    Bytes that are not UTF-8 come back as Python's own file names have them (surrogateescape).
    """
    raw = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), key.encode("utf-8"))
    return raw.decode("utf-8", "surrogateescape")


def check_key(key: str) -> bytes:
    """Return the bytes of a key.

    Raises:
        RecordError: it does not follow the key rule.
    """
    if not isinstance(key, str) or not key:  # type: ignore[redundant-expr]  # callers may be untyped
        raise RecordError(f"a record's key must be a non-empty str, not {key!r}")
    try:
        raw = key.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(f"key {key!r} is not UTF-8; fastdata.key_from_path makes keys from paths") from error
    if not _SIMPLE.fullmatch(raw) and _escape(_ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw)) != raw:
        raise RecordError(
            f"key {key!r} does not follow the key rule; "
            f"use fastdata.key_from_path(path), which gives {key_from_path(key, keep_suffix=True)!r}"
        )
    return raw


def check_record(record: Record) -> None:
    """Refuse a record that some format could not hold, or would read back as something else.

    Raises:
        RecordError: it names the key or field, what is wrong with it, and what is allowed.
    """
    key = record.key
    raw = check_key(key)
    try:
        long = len(record.path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES
    except (AttributeError, UnicodeEncodeError) as error:
        raise RecordError(f"record {key!r}: path {record.path!r} is not a file name") from error
    if long:
        raise RecordError(f"record {key!r}: its path has more than {MAX_PATH_BYTES:,} bytes: {record.path[:100]!r}...")
    if not record.fields:
        raise RecordError(f"record {key!r} has no fields")
    if record.image and next((name for name in record.fields if name in IMAGE_FIELDS), "") != record.image:
        raise RecordError(
            f"record {key!r}: its image, {record.image!r}, would not be found as its image; make a Record with the "
            "image first, as 'jpg', 'png' or the like"
        )
    for name, blob in record.fields.items():
        _check_field(key, name, blob, MAX_NAME_BYTES - len(raw) - 1)


def is_field_name(name: object) -> TypeGuard[str]:
    """Whether this is a valid field name: lower-case letters, digits, `_`, `-` and inner dots, no leading `__`."""
    return isinstance(name, str) and _FIELD.fullmatch(name) is not None


def _check_field(key: str, name: str, blob: object, longest: int) -> None:
    """Refuse an invalid name or content of a field; the name has at most `longest` bytes beside the key."""
    if not is_field_name(name):
        raise RecordError(
            f"record {key!r}: field {name!r}: use lower-case letters, digits, '_', '-', inner dots; no leading '__'"
        )
    if name == "jpeg":
        raise RecordError(f"record {key!r}: field 'jpeg' is spelled 'jpg' here, so that every reader finds it")
    if len(name) > longest:
        raise RecordError(f"record {key!r}: key and field {name!r} together exceed {MAX_NAME_BYTES} bytes")
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise RecordError(f"record {key!r}: field {name!r} must be bytes-like, not {type(blob).__name__}")
    if memoryview(blob).nbytes > MAX_BLOB_BYTES:
        raise RecordError(f"record {key!r}: field {name!r} has more than {MAX_BLOB_BYTES} bytes; split it")
