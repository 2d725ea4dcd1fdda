"""Field: one kind of value in samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from fastdata.codec.info import Data
    from fastdata.transforms.plan import Plan

V = TypeVar("V")


class Field(ABC, Generic[V]):
    """How one kind of value is decoded, moved, encoded and batched. Small and immutable: workers are sent theirs.

    Attributes:
        suffixes: the names of record fields that hold such a value, in the order in which they are looked for.
        repeats: a record may hold several, as `NAME.SUFFIX`.
        moves: geometry changes the value, so it goes through the plan of its sample's image.
        slot: the value is an array of one shape and type in all samples, and lies in the buffers of a batch. Other
            values come to the consumer as Python objects.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    repeats: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    slot: ClassVar[bool] = False

    @abstractmethod
    def decode(self, data: Data, /) -> V:
        """The value that a record field's bytes hold. The bytes are only right during the call.

        Raises:
            FormatError: they hold none. The message names neither record nor field, which the caller knows.
        """

    def apply(self, value: V, plan: Plan, /) -> V:  # noqa: ARG002
        """What becomes of the value by the plan of its sample's image."""
        return value

    def make(self, data: Data, plan: Plan | None, /) -> V:
        """Decode and move. A field that can decode a part of itself overrides this, and decodes what the plan needs."""
        value = self.decode(data)
        return self.apply(value, plan) if self.moves and plan is not None else value

    def stem(self, record_name: str) -> str:
        """What stands before the suffix in the name of a record's field, with the dot: "left." of `left.mask.png`."""
        suffix = max((each for each in self.suffixes if record_name.endswith(each)), key=len, default=record_name)
        return record_name[: -len(suffix)]

    @abstractmethod
    def encode(self, value: V, /) -> tuple[str, bytes]:
        """The suffix and the bytes of a record field that holds the value."""

    @abstractmethod
    def collate(self, values: Sequence[V | None], /) -> Any:
        """The values of a batch as the consumer gets them. None stands for a record without the field."""
