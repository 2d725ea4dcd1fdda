"""Checks of the arguments that users give: one function for each kind of value, one wording for all.

Each function returns the value in the one spelling that the library uses, or raises an OptionError that names the
argument, what came and what would do. Arguments are checked where they come in, and trusted behind that.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from fastdata.errors import OptionError
from fastdata.size import Size

T = TypeVar("T")

# The longest side that an image can have here, so that a mistyped size is noticed at once.
LONGEST_SIDE = 65535
# What a value is shown with in an error, at most: it may be an array or a whole file.
_SHOWN = 100
_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "k": 10**3, "m": 10**6, "g": 10**9,
    "t": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def refuse(name: str, wanted: str, value: object) -> NoReturn:
    """Raise the error for an argument that cannot be used.

    >>> refuse("batch_size", "an integer", "x")
    Traceback (most recent call last):
    fastdata.errors.OptionError: batch_size must be an integer, not 'x'
    """
    raise OptionError(f"{name} must be {wanted}, not {value!r:.{_SHOWN}}") from None


def integer(
    name: str, value: object, least: int | None = None, most: int | None = None, *, alternative: str = ""
) -> int:
    """An integer within bounds, which are included; numpy's and torch's integers will do, True and False will not.

    Args:
        name: the argument.
        value: what was given.
        least: the lowest value that would do.
        most: the highest one.
        alternative: what else the argument takes, for the error.

    Raises:
        OptionError: anything else.
    """
    found = _index(value)
    if found is None or (least is not None and found < least) or (most is not None and found > most):
        bounds = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
        refuse(name, f"an integer{bounds}{alternative and f' or {alternative}'}", value)
    return found


def number(name: str, value: object, least: float, most: float = math.inf) -> float:
    """A finite number within bounds, which are included; an integer stays one.

    Raises:
        OptionError: anything else.
    """
    found = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    if not least <= found <= most or found == math.inf:
        refuse(name, f"a number of at least {least}" if most == math.inf else f"a number from {least} to {most}", value)
    return int(found) if isinstance(value, numbers.Integral) else found


def flag(name: str, value: object) -> bool:
    """True or False.

    Raises:
        OptionError: anything else.
    """
    if not isinstance(value, (bool, np.bool_)):
        refuse(name, "True or False", value)
    return bool(value)


def choice(name: str, value: object, choices: Sequence[T]) -> T:
    """One of these values.

    Raises:
        OptionError: anything else.
    """
    for each in choices:
        if value is each or (isinstance(value, type(each)) and value == each):
            return each
    *some, last = map(repr, choices)
    refuse(name, f"{', '.join(some)} or {last}" if some else last, value)


def function(name: str, value: T) -> T:
    """Anything that can be called.

    Raises:
        OptionError: anything else.
    """
    if not callable(value):
        refuse(name, "callable", value)
    return value


def interval(name: str, value: Any, *, zero: bool = False) -> tuple[float, float]:
    """(least, most), both finite and above 0; the least may be 0 with `zero`.

    Raises:
        OptionError: anything else.
    """
    try:
        least, most = (float(bound) for bound in value)
    except (TypeError, ValueError):
        least, most = 0.0, 0.0
    if not 0 <= least <= most < math.inf or not most or not (least or zero):
        refuse(name, f"(least, most) with 0 {'<=' if zero else '<'} least <= most", value)
    return least, most


def side(name: str, value: object, least: int = 1, *, alternative: str = "") -> int:
    """A length in pixels; as in torchvision, a sequence of one will do.

    Raises:
        OptionError: anything else.
    """
    sides = _sequence(value, 1)
    if sides is not None and _index(sides[0]) is not None:
        value = sides[0]
    return integer(name, value, least, LONGEST_SIDE, alternative=alternative)


def size(name: str, value: object) -> Size:
    """A size from (height, width); an integer, or a sequence of one, is a square.

    Raises:
        OptionError: anything else.
    """
    sides = _sequence(value, 2)
    if sides is not None:
        height, width = map(_index, sides)
        if height is not None and width is not None and 1 <= height <= LONGEST_SIDE and 1 <= width <= LONGEST_SIDE:
            return Size(height, width)
        refuse(name, f"an integer from 1 to {LONGEST_SIDE} or (height, width) of such integers", value)
    square = side(name, value, alternative="(height, width)")
    return Size(square, square)


def color(name: str, value: object) -> tuple[int, int, int]:
    """(red, green, blue) from three levels, from one level, which is a gray, or from a text such as "0,0,0".

    Raises:
        OptionError: anything else.
    """
    given: Any = value.split(",") if isinstance(value, str) and "," in value else value
    is_one = isinstance(given, str) or not isinstance(given, Sequence | np.ndarray)
    levels = [_level(level) for level in ((given,) * 3 if is_one else given)]
    if len(levels) != 3 or None in levels:
        refuse(name, "a level from 0 to 255 or three of them (red, green, blue)", value)
    red, green, blue = (level or 0 for level in levels)
    return red, green, blue


def byte_count(name: str, value: object) -> int:
    """A number of bytes, from an integer or from a text such as "256MB", "1.5 GB" or "64MiB".

    Raises:
        OptionError: anything else, or a number that no file can have.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
        if match is None or match[2].lower() not in _UNITS:
            refuse(name, 'a size such as "256MB", "1GB" or "64MiB"', value)
        value = int(min(float(match[1]) * _UNITS[match[2].lower()], 2.0**64))
    return integer(name, value, 1, 2**63 - 1)


def bilinear(name: str, value: object) -> None:
    """The one interpolation that there is, in any of torchvision's and Pillow's spellings.

    Raises:
        OptionError: another one; it names what to do.
    """
    if getattr(value, "value", value) not in ("bilinear", 2):  # torchvision's is an enumeration
        raise OptionError(
            f"{name} must be 'bilinear', not {value!r}: images are resized bilinearly here; for another filter put "
            "torchvision's transform behind those of fastdata"
        )


def image(owner: str, value: object, hint: str = "") -> None:
    """An H x W x 3 array of uint8 that is not empty.

    Args:
        owner: what takes it.
        value: what was given.
        hint: what to do where it is something else.

    Raises:
        OptionError: anything else.
    """
    array = value if isinstance(value, np.ndarray) else None
    if array is None or array.dtype != np.uint8 or array.shape[2:] != (3,) or not array.size:
        found = type(value).__name__ if array is None else f"{array.dtype} {array.shape}"
        raise OptionError(f"{owner} takes an H x W x 3 array of uint8 that is not empty, not {found}{hint}")


def _sequence(value: object, length: int) -> Sequence[Any] | None:
    """A sequence of so many items, None for anything else."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == length:
        return value
    return None


def _index(value: Any) -> int | None:
    """An integer as Python's, None for anything else, True and False among it."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _level(value: Any) -> int | None:
    """A level of a color, also as text; None for anything else."""
    text = value.strip() if isinstance(value, str) else ""
    level = int(text) if text.isdecimal() else _index(value)
    return level if level is not None and 0 <= level <= 255 else None
