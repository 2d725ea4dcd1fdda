"""Arguments that several commands share: what they are called, and how their text becomes a value."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from fastdata.codec.info import MAX_PIXELS

# What `fastdata.open` takes, as far as a shell can say it.
DataSet = Annotated[str, typer.Argument(metavar="PATH", help="A data set, tars of any origin, or an image folder.")]


def whole(text: str | int) -> int:
    """An integer; what range it must be in, the options themselves say."""
    return _integer(text, None)


def positive(text: str | int) -> int:
    """An integer of at least 1."""
    return _integer(text, 1)


def _integer(text: str | int, least: int | None) -> int:
    from fastdata.checks import integer
    from fastdata.errors import OptionError

    value: object = text
    with contextlib.suppress(ValueError):
        value = int(text)
    try:
        return integer("it", value, least)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error


MaxPixels = Annotated[
    int | None,
    typer.Option(
        parser=whole, metavar="N", help=f"Refuse larger images before they take memory.  [default: {MAX_PIXELS}]"
    ),
]
ImageField = Annotated[
    str | None, typer.Option(metavar="NAME", help="The field that holds the image, in data of others.")
]
LabelField = Annotated[
    str | None, typer.Option(metavar="NAME", help="The field that holds the label, in data of others.")
]


def reading(**options: Any) -> dict[str, Any]:
    """What `fastdata.open` is given: the options that were, and its own defaults for the others."""
    return {name: value for name, value in options.items() if value is not None}
