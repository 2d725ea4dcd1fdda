"""Batches as nests of tensors: a function of one tensor flows in, the same function over a whole batch comes out.

Promises: the nesting and the types of its containers stay; a container in which nothing changed is the very same
object; no container that was given is changed.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeVar, cast

from torch import Tensor

T = TypeVar("T")


def map_tensors(nest: T, function: Callable[[Tensor], Tensor]) -> T:
    """The nest with every tensor replaced by the function's result.

    Looked into: tuples, named tuples, lists, mappings and dataclasses. Everything else stays as it is, whatever
    tensors it may hold, since nobody but its own class knows how it is put together.
    """
    return cast(T, _mapped(nest, function))


def _mapped(nest: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(nest, Tensor):
        return function(nest)
    if isinstance(nest, Mapping):
        return _mapping(nest, {key: _mapped(value, function) for key, value in nest.items()})
    if isinstance(nest, (tuple, list)):
        return _sequence(nest, [_mapped(value, function) for value in nest])
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        names = [field.name for field in dataclasses.fields(nest) if hasattr(nest, field.name)]
        return _dataclass(nest, {name: _mapped(getattr(nest, name), function) for name in names})
    return nest


def _mapping(nest: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    if all(value is nest[key] for key, value in values.items()):
        return nest
    if isinstance(nest, MutableMapping):
        # A copy, so that what a class adds (a default factory, an order, attributes) stays.
        clone = copy.copy(nest)
        clone.update(values)
        return clone
    try:
        return type(nest)(values)  # type: ignore[call-arg]
    except TypeError:  # an immutable mapping that is made some other way
        return values


def _sequence(nest: Any, values: list[Any]) -> Any:
    if all(new is old for new, old in zip(values, nest, strict=True)):
        return nest
    if isinstance(nest, list):
        clone = copy.copy(nest)
        clone[:] = values
        return clone
    if hasattr(nest, "_fields"):
        return type(nest)(*values)
    return type(nest)(values)


def _dataclass(nest: Any, values: dict[str, Any]) -> Any:
    if all(value is getattr(nest, name) for name, value in values.items()):
        return nest
    clone = copy.copy(nest)
    for name, value in values.items():
        object.__setattr__(clone, name, value)  # also where the class is frozen
    return clone
