"""`fastdata convert`: convert a folder of images, print a summary and return an exit code.

`fastdata.convert` checks the values, so that the command and Python give the same errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli.arguments import whole
from fastdata.codec.info import MAX_PIXELS
from fastdata.formats import DEFAULT_SHARD_SIZE, sharded, writable, writable_suffixes

if TYPE_CHECKING:
    from fastdata.converters.report import ConvertReport


def command(  # as many parameters as the command has options: this signature is the synopsis
    src: Annotated[str, typer.Argument(metavar="SRC", help="A folder of class folders, or a flat folder of images.")],
    dst: Annotated[
        str,
        typer.Argument(
            metavar="DST", help=f"Output path; its suffix names the format: {', '.join(writable_suffixes())}."
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(writable()),
            help=f"Format, if DST's suffix does not name it; {', '.join(sharded())}: a folder of shards.",
        ),
    ] = None,
    resize: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Resize to this side, in pixels.  [default: keep the size]"),
    ] = None,
    resize_mode: Annotated[
        str | None,
        typer.Option(
            metavar="shorter|longer|exact|crop|pad", help="Which side is N, or exactly N x N.  [default: shorter]"
        ),
    ] = None,
    upscale: Annotated[
        bool, typer.Option("--upscale", help="Also enlarge smaller images (exact and crop always do).")
    ] = False,
    pad_color: Annotated[
        str | None,
        typer.Option(metavar="R,G,B", help="Padding colour for --resize-mode pad.  [default: 0,0,0]"),
    ] = None,
    encode: Annotated[
        str,
        typer.Option(
            metavar="jpeg|png|webp|bmp|raw|keep",
            help="How images are stored; keep: the original bytes if nothing changes.",
        ),
    ] = "jpeg",
    quality: Annotated[
        int | None, typer.Option(parser=whole, metavar="1..100", help="Quality of jpeg and webp.  [default: 90]")
    ] = None,
    optimize: Annotated[
        bool,
        typer.Option("--optimize", help="Optimise the Huffman tables of each JPEG: 3 % smaller, slower to encode."),
    ] = False,
    alpha: Annotated[
        str, typer.Option(metavar="white|black|drop", help="Background for transparent images; drop: none.")
    ] = "white",
    max_pixels: Annotated[
        int | None,
        typer.Option(
            parser=whole,
            metavar="N",
            help=f"Reject images of more pixels before they take memory.  [default: {MAX_PIXELS}]",
        ),
    ] = None,
    keep_damaged: Annotated[bool, typer.Option("--keep-damaged", help="Keep images whose data end early.")] = False,
    icc: Annotated[
        str,
        typer.Option(
            metavar="convert|keep", help="Convert images with another colour profile to sRGB, or keep their values."
        ),
    ] = "convert",
    class_order: Annotated[
        str, typer.Option(metavar="plain|natural", help="Sort class folders as torchvision does, or 2 before 10.")
    ] = "plain",
    shuffle: Annotated[
        bool,
        typer.Option("--shuffle", help="Write the records in random order, for tars that are streamed in training."),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(parser=whole, metavar="N", help="Random seed for --shuffle.  [default: 0]")
    ] = None,
    shard_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help=f"Maximum size of a shard, in KB to GB or KiB to GiB.  [default: {DEFAULT_SHARD_SIZE // 10**6}MB]",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Worker processes.  [default: the cores this process may use]"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace DST; the old data set stays until the new one is complete.")
    ] = False,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE.json", help="Write which files were kept, rejected and ignored, and why."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print no progress and no summary, only rejected files.")
    ] = False,
) -> None:
    """Convert a folder of images into one data set.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but some inputs were rejected, 130 interrupted, 143 terminated.
    """
    from fastdata.cli import FAILED, REJECTED
    from fastdata.cli.terminal import write_error
    from fastdata.converters.convert import convert

    options: dict[str, Any] = {
        "format": format, "resize": resize, "resize_mode": resize_mode, "upscale": upscale,
        "pad_color": pad_color, "encode": encode, "quality": quality, "optimize": optimize, "alpha": alpha,
        "keep_damaged": keep_damaged, "icc": icc, "class_order": class_order, "shuffle": shuffle, "seed": seed,
        "shard_size": shard_size, "workers": workers, "overwrite": overwrite, "report": report,
        "progress": not quiet,
    }  # fmt: skip
    if max_pixels is not None:
        options["max_pixels"] = max_pixels
    if shard_size is not None:
        _check_shard_size(dst, format, shard_size)
    result = convert(src, dst, **options)
    _print(result, dst, quiet, report)
    if result.error:
        write_error(f"error: {result.error}")
        raise typer.Exit(FAILED)
    if result.rejected:
        raise typer.Exit(REJECTED)


def _check_shard_size(dst: str, format: str | None, shard_size: str) -> None:
    """Refuse a shard size if DST is not a folder of shards, because whoever gives one expects shards.

    `fastdata.convert` only warns, because a program may pass a shard size for several formats.

    Raises:
        OptionError: it says where a shard size has an effect.
    """
    from fastdata.checks import byte_count
    from fastdata.converters.options import idle_shard_size
    from fastdata.errors import OptionError
    from fastdata.formats import format_of

    byte_count("shard_size (--shard-size)", shard_size)
    if message := idle_shard_size(format_of(dst, format), dst):
        raise OptionError(message)


def _print(result: ConvertReport, dst: str, quiet: bool, report: str | None) -> None:
    """Print the first rejected inputs and warnings by name to stderr, and the summary to stdout."""
    from fastdata.cli.terminal import pairs, size_text, write_line

    _list("rejected", result.rejected, report)
    if quiet:
        return
    _list("warning", result.warnings, report)
    inputs = result.kept + len(result.rejected)
    rate = f"{inputs / result.seconds:,.0f} images/s" if result.seconds > 0 else "-"
    rows: list[tuple[str, object]] = [
        ("kept", f"{result.kept:,} images"),
        ("rejected", f"{len(result.rejected):,}"),
        ("ignored", f"{len(result.ignored):,} other files"),
        ("warnings", f"{len(result.warnings):,}"),
        ("classes", f"{len(result.classes):,}"),
        ("size", f"{size_text(result.bytes_in)} -> {size_text(result.bytes_out)}"),
        ("time", f"{result.seconds:.1f} s, {rate}"),
        ("output", dst),
    ]
    if result.engine:
        rows.insert(-1, ("resized by", result.engine))
    write_line(pairs(rows))


def _list(word: str, entries: Sequence[Any], report: str | None) -> None:
    from fastdata.cli.terminal import SHOWN, write_error

    for entry in entries[:SHOWN]:
        path = "" if entry["path"] == "." else f"{entry['path']}: "  # "." is the conversion as a whole
        write_error(f"{word}: {path}{entry['reason']}")
    more = len(entries) - SHOWN
    if more > 0:
        write_error(f"{word}: ... and {more:,} more; {report if report else '--report FILE.json'} names them all")
