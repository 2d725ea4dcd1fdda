"""Apply a function to every tensor of a batch, which is a tree (nested containers) of tensors.

The nesting and the types of the containers stay; a container in which nothing changed is the very same object; no given
container is modified.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeVar, cast

from torch import Tensor

T = TypeVar("T")


def map_tensors(tree: T, function: Callable[[Tensor], Tensor]) -> T:
    """The tree with every tensor replaced by the function's result.

    Tuples, named tuples, lists, mappings and dataclasses are traversed. Everything else stays as it is, even if it
    holds tensors, since only its own class knows how to rebuild it.
    """
    return cast(T, _mapped(tree, function))


def _mapped(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return _mapping(tree, {key: _mapped(value, function) for key, value in tree.items()})
    if isinstance(tree, (tuple, list)):
        return _sequence(tree, [_mapped(value, function) for value in tree])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
        return _dataclass(tree, {name: _mapped(getattr(tree, name), function) for name in names})
    return tree


def _mapping(tree: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    if all(value is tree[key] for key, value in values.items()):
        return tree
    if isinstance(tree, MutableMapping):
        # A copy keeps what a class adds (a default factory, an order, attributes).
        clone = copy.copy(tree)
        clone.update(values)
        return clone
    try:
        return type(tree)(values)  # type: ignore[call-arg]
    except TypeError:  # an immutable mapping with another constructor
        return values


def _sequence(tree: Any, values: list[Any]) -> Any:
    if all(new is old for new, old in zip(values, tree, strict=True)):
        return tree
    if isinstance(tree, list):
        clone = copy.copy(tree)
        clone[:] = values
        return clone
    if hasattr(tree, "_fields"):
        return type(tree)(*values)
    return type(tree)(values)


def _dataclass(tree: Any, values: dict[str, Any]) -> Any:
    if all(value is getattr(tree, name) for name, value in values.items()):
        return tree
    clone = copy.copy(tree)
    for name, value in values.items():
        object.__setattr__(clone, name, value)  # also if the class is frozen
    return clone
