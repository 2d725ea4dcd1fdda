"""Fields that geometry leaves alone: class numbers, text, JSON, and bytes of any other kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastdata.errors import FormatError
from fastdata.fields.base import Field
from fastdata.fields.collate import int64
from fastdata.record import class_number

if TYPE_CHECKING:
    import torch

    from fastdata.codec.info import Data

# How many of a field's bytes a message quotes.
_SHOWN = 40


@dataclass(frozen=True)
class ClassField(Field[int]):
    """A class number: an integer in ASCII, -1 for none. Batches hold an int64 tensor."""

    suffixes = ("cls",)

    def decode(self, data: Data) -> int:
        number = class_number(bytes(data))
        if number is None:
            raise FormatError(f"not an integer in ASCII: {bytes(data)[:_SHOWN]!r}")
        return number

    def encode(self, value: int) -> tuple[str, bytes]:
        return "cls", b"%d" % value

    def collate(self, values: Sequence[int | None]) -> torch.Tensor:
        return int64([-1 if value is None else value for value in values])


@dataclass(frozen=True)
class TextField(Field[str]):
    """Text in UTF-8. Batches hold a list of str."""

    suffixes = ("txt",)
    repeats = True

    def decode(self, data: Data) -> str:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"not text in UTF-8: {error}") from error

    def encode(self, value: str) -> tuple[str, bytes]:
        return "txt", value.encode("utf-8")

    def collate(self, values: Sequence[str | None]) -> list[str | None]:
        return list(values)


@dataclass(frozen=True)
class JsonField(Field[Any]):
    """A JSON value: dicts, lists, strings and numbers. Batches hold a list."""

    suffixes = ("json", "jsn")
    repeats = True

    def decode(self, data: Data) -> Any:
        try:
            return json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not valid JSON: {error}") from error

    def encode(self, value: Any) -> tuple[str, bytes]:
        return "json", json.dumps(value, allow_nan=False).encode("ascii")

    def collate(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


@dataclass(frozen=True)
class BytesField(Field[bytes]):
    """Bytes as they are stored, under the name that they have in the record. Batches hold a list of bytes.

    Args:
        name: of the record field to write.
    """

    name: str = "bin"
    repeats = True

    def decode(self, data: Data) -> bytes:
        return bytes(data)

    def encode(self, value: bytes) -> tuple[str, bytes]:
        return self.name, bytes(value)

    def collate(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        return list(values)
