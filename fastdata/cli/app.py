"""The table of commands. Each is one module of this package, and imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fastdata.cli import bench, convert, info, verify


def _version(wanted: bool) -> None:
    if wanted:
        import fastdata
        from fastdata.cli.terminal import write_line

        write_line(f"fastdata {fastdata.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Pack image folders into LMDB, HDF5 or tar shards; inspect, verify and measure data sets."""


def command() -> Any:
    """The whole program as one command object; `Any`, because its class is private to typer."""
    # Help and errors are plain text: with rich they take 80 to 200 ms longer, because it loads a Markdown renderer.
    app = typer.Typer(
        no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_root)
    for name, function in (
        ("convert", convert.command),
        ("info", info.command),
        ("verify", verify.command),
        ("bench", bench.command),
    ):
        app.command(name)(function)
    return typer.main.get_command(app)
