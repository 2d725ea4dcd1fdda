"""Arguments that several commands share: their names, and how text becomes a value."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from fastdata.codec.info import MAX_PIXELS

# What `fastdata.open` takes, as far as a command line can give it.
DataSet = Annotated[str, typer.Argument(metavar="PATH", help="A data set, tars of any origin, or an image folder.")]


def whole(text: str | int) -> int:
    """An integer; the options themselves check its range."""
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
        parser=whole,
        metavar="N",
        help=f"Reject images of more pixels before they take memory.  [default: {MAX_PIXELS}]",
    ),
]
ImageField = Annotated[
    str | None, typer.Option(metavar="NAME", help="Field that holds the image, if fastdata did not write the data.")
]
LabelField = Annotated[
    str | None, typer.Option(metavar="NAME", help="Field that holds the label, if fastdata did not write the data.")
]


def reading(**options: Any) -> dict[str, Any]:
    """The options for `fastdata.open` that were given."""
    return {name: value for name, value in options.items() if value is not None}
