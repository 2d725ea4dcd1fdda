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
    """How one kind of value is decoded, moved, encoded and batched. Small and immutable, since it is sent to workers.

    Attributes:
        suffixes: the names of record fields that hold such a value, in the order in which they are looked for.
        repeats: a record may hold several, as `NAME.SUFFIX`.
        moves: geometry changes the value, so the plan of its sample's image is applied to it.
        slot: the value is an array of one shape and type in all samples, and lies in the buffers of a batch. Other
            values reach the consumer as Python objects.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    repeats: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    slot: ClassVar[bool] = False

    @abstractmethod
    def decode(self, data: Data, /) -> V:
        """Decode the bytes of a record's field. They are valid only during the call.

        Raises:
            FormatError: they hold no such value. The message names neither record nor field; the caller adds them.
        """

    def apply(self, value: V, plan: Plan, /) -> V:  # noqa: ARG002
        """Apply the plan of its sample's image to the value."""
        return value

    def make(self, data: Data, plan: Plan | None, /) -> V:
        """Decode and move. A field that can decode a part of itself overrides this, and decodes what the plan needs."""
        value = self.decode(data)
        return self.apply(value, plan) if self.moves and plan is not None else value

    def stem(self, record_name: str) -> str:
        """The name of a record's field before its suffix, with the dot: "left." of `left.mask.png`."""
        suffix = max((each for each in self.suffixes if record_name.endswith(each)), key=len, default=record_name)
        return record_name[: -len(suffix)]

    @abstractmethod
    def encode(self, value: V, /) -> tuple[str, bytes]:
        """The suffix and the bytes of a record field that holds this value."""

    @abstractmethod
    def collate(self, values: Sequence[V | None], /) -> Any:
        """Batch values. None stands for a record without the field."""
