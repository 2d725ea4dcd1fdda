"""map_tensors: every kind of container, kept types, nothing changed in place, the same object where nothing changes."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fastdata.tree import map_tensors


class Pair(NamedTuple):
    image: torch.Tensor
    label: Any


class Tagged(list[Any]):
    tag = "mine"


@dataclass
class Plain:
    image: torch.Tensor
    name: str = "x"


@dataclass(frozen=True)
class Frozen:
    image: torch.Tensor
    key: str = field(default="k", init=False)


@dataclass(frozen=True, slots=True)
class Slotted:
    image: torch.Tensor


ONE = torch.tensor([1.0])
TREES = {
    "tensor": ONE,
    "tuple": (ONE, "a"),
    "list": [ONE, 3],
    "list of its own class": Tagged([ONE]),
    "named tuple": Pair(ONE, [ONE]),
    "dict": {"image": ONE, 5: b"bytes"},
    "ordered": OrderedDict(b=ONE, a=None),
    "default": defaultdict[str, Any](list, x=ONE),
    "proxy": MappingProxyType({"x": ONE}),
    "dataclass": Plain(ONE),
    "frozen": Frozen(ONE),
    "slots": Slotted(ONE),
    "deep": [{"x": (Pair(ONE, {"y": [ONE]}), Plain(ONE))}, ()],
}


def leaves(tree: object) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    assert map_tensors(tree, note) is tree
    return found


@pytest.mark.parametrize("name", TREES)
def test_each_kind_of_tree(name: str) -> None:
    tree = TREES[name]
    before = repr(tree)
    mapped = map_tensors(tree, lambda tensor: tensor + 1)
    assert type(mapped) is type(tree)
    assert repr(mapped) == before.replace("1.", "2.")
    assert repr(tree) == before
    assert all(torch.equal(leaf, ONE + 1) for leaf in leaves(mapped))
    assert len(leaves(mapped)) == len(leaves(tree)) > 0


def test_what_a_class_adds_stays() -> None:
    mapped = map_tensors(defaultdict[str, Any](list, x=ONE), lambda tensor: tensor + 1)
    assert mapped["new"] == []
    tagged = Tagged([ONE])
    tagged.tag = "changed"
    assert map_tensors(tagged, lambda tensor: tensor + 1).tag == "changed"


class OnlyOne(Mapping[str, Any]):
    def __init__(self, key: str, value: object) -> None:
        self._key, self._value = key, value

    def __getitem__(self, key: str) -> Any:
        return {self._key: self._value}[key]

    def __iter__(self) -> Iterator[str]:
        return iter([self._key])

    def __len__(self) -> int:
        return 1


def test_an_immutable_mapping_that_is_made_another_way_becomes_a_dict() -> None:
    assert map_tensors(OnlyOne("x", ONE), lambda tensor: tensor + 1) == {"x": ONE + 1}


@pytest.mark.parametrize("other", ["text", b"bytes", None, 3, 2.5, np.zeros(3), range(3), {1, 2}, torch.Size([1, 2])])
def test_everything_else_is_the_same_object(other: object) -> None:
    assert map_tensors(other, lambda tensor: tensor + 1) is other
    held = (other,)
    assert map_tensors(held, lambda tensor: tensor + 1) is held


def test_an_exception_of_the_function_comes_out() -> None:
    def fail(tensor: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        map_tensors({"x": [ONE]}, fail)
