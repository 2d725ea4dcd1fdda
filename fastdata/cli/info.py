"""`fastdata info`: print the manifest of a data set and counts from its index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli.arguments import DataSet, ImageField, LabelField, reading

if TYPE_CHECKING:
    from fastdata.formats.base import Reader

_BAR = 40  # characters in the longest bar of the histogram
# Images that are examined for a colour profile, spread over the data set; this takes a tenth of a second.
_EXAMINED = 1000


def command(
    path: DataSet,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as strict JSON.")] = False,
    image_field: ImageField = None,
    label_field: LabelField = None,
) -> None:
    """Show manifest, counts, classes and image sizes of a data set."""
    from fastdata.cli.terminal import write_json
    from fastdata.formats import detect

    with detect.open(path, **reading(image_field=image_field, label_field=label_field)) as reader:
        facts = describe(reader)
    if as_json:
        write_json(facts)
    else:
        _show(facts)


def describe(reader: Reader) -> dict[str, Any]:
    """What `--json` prints: the manifest's values, classes with counts, and the sizes of the encoded images."""
    from fastdata.cli.measure import engines

    manifest = reader.manifest
    classes, unlabelled = _classes(reader)
    return {
        "path": reader.path,
        "format": manifest.format,
        "layout_version": manifest.version,
        "count": len(reader),
        "fields": list(manifest.fields),
        "classes": classes,
        "unlabelled": unlabelled,
        "fingerprint": manifest.fingerprint,
        "options": dict(manifest.options),
        "files": [{"name": file.name, "bytes": file.bytes} for file in manifest.files],
        "images": _sizes(reader),
        "profiles": _profiles(reader),
        "engines": engines(),
    }


def _classes(reader: Reader) -> tuple[list[dict[str, Any]], int]:
    """Classes by number with their counts (also numbers without a name), and the number of records without a class."""
    import numpy as np

    numbers, counts = np.unique(reader.labels, return_counts=True)
    found = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    unlabelled = sum(count for number, count in found.items() if number < 0)
    names = dict(enumerate(reader.classes))
    known = sorted(names.keys() | {number for number in found if number >= 0})
    return [{"number": n, "name": names.get(n, ""), "count": found.get(n, 0)} for n in known], unlabelled


def _sizes(reader: Reader) -> dict[str, Any]:
    """Count, total, spread and histogram (by powers of two) of the encoded images, from the index alone."""
    import numpy as np

    from fastdata.errors import FormatError, RecordError

    sizes = np.zeros(len(reader), np.int64)
    present = np.ones(len(reader), bool)
    for row in range(len(reader)):
        try:
            sizes[row] = reader.image_size(row)
        except (FormatError, RecordError):  # a record without an image
            present[row] = False
    sizes = sizes[present]
    if not len(sizes):
        return {"count": 0, "bytes": 0, "histogram": []}
    # frexp's exponent is exact where log2 rounds: 2**e / 2 <= size < 2**e; an empty blob has e = 0
    exponents, counts = np.unique(np.frexp(sizes.astype(np.float64))[1], return_counts=True)
    bins = dict(zip(exponents.tolist(), counts.tolist(), strict=True))
    return {
        "count": len(sizes),
        "bytes": int(sizes.sum()),
        "min": int(sizes.min()),
        "median": float(np.median(sizes)),
        "mean": float(sizes.mean()),
        "max": int(sizes.max()),
        "histogram": [
            {"from": 1 << (e - 1) if e else 0, "below": 1 << e, "count": bins.get(e, 0)}
            for e in range(min(bins), max(bins) + 1)
        ],
    }


def _profiles(reader: Reader) -> dict[str, int]:
    """How many of the examined images have a colour profile that is not sRGB, which readers ignore."""
    from fastdata.codec import icc
    from fastdata.codec.sniff import probe
    from fastdata.errors import DecodeError, FormatError, RecordError

    count = min(len(reader), _EXAMINED)
    found = {"looked_at": 0, "not_srgb": 0}
    for number in range(count):
        try:
            _, data = reader.image(len(reader) * number // count)
            info = probe(data)
        except (FormatError, RecordError, DecodeError):  # `verify` reports it
            continue
        found["looked_at"] += 1
        profile = icc.embedded(data, info)
        if profile is not None and icc.conversion(profile, icc.mode_of(info)) is not None:
            found["not_srgb"] += 1
    return found


def _show(facts: dict[str, Any]) -> None:
    from fastdata.cli.measure import engine_line
    from fastdata.cli.terminal import pairs, size_text, write_line

    images = facts["images"]
    rows: list[tuple[str, object]] = [
        ("path", facts["path"]),
        ("format", f"{facts['format']}, layout version {facts['layout_version']}"),
        ("records", f"{facts['count']:,}"),
        ("fields", ", ".join(facts["fields"]) or "-"),
        ("classes", f"{len(facts['classes']):,}"),
        ("without class", f"{facts['unlabelled']:,} records"),
        ("images", f"{images['count']:,}, {size_text(images['bytes'])} together"),
    ]
    if images["count"]:
        sizes = [f"{name} {size_text(images[name])}" for name in ("min", "median", "mean", "max")]
        rows.append(("image size", ", ".join(sizes)))
    if facts["profiles"]["not_srgb"]:
        text = "{not_srgb:,} of {looked_at:,} images looked at are not sRGB; readers ignore that"
        rows.append(("colour profiles", text.format(**facts["profiles"])))
    if facts["files"]:
        total = sum(file["bytes"] for file in facts["files"])
        rows.append(("files", f"{len(facts['files']):,}, {size_text(total)} together"))
    rows.append(("fingerprint", facts["fingerprint"] or "- (not written by fastdata)"))
    rows += [(f"option {name}", value) for name, value in facts["options"].items()]
    rows.append(("engines here", engine_line(facts["engines"])))
    write_line(pairs(rows))
    _show_classes(facts["classes"])
    _show_histogram(images["histogram"])


def _show_classes(classes: list[dict[str, Any]]) -> None:
    import sys

    from fastdata.cli.terminal import SHOWN, is_terminal, table, write_line

    if not classes:
        return
    shown = classes[:SHOWN] if is_terminal(sys.stdout) else classes
    write_line()
    rows = [(row["number"], row["name"], f"{row['count']:,}") for row in shown]
    write_line(table("", ["class", "name", "count"], rows, left=2))
    if len(shown) < len(classes):
        write_line(f"... and {len(classes) - len(shown):,} more classes; --json lists them all")


def _show_histogram(histogram: list[dict[str, int]]) -> None:
    from fastdata.cli.terminal import write_line

    if not histogram:
        return
    top = max(row["count"] for row in histogram)
    write_line()
    write_line("image sizes")
    for row in histogram:
        bar = "#" * -(-row["count"] * _BAR // top)  # rounded up: a single image is visible, too
        write_line(f"{_binary(row['from']):>8} .. {_binary(row['below']):>8}  {bar:<{_BAR}}  {row['count']:,}")


def _binary(count: int) -> str:
    """A power of two as text: 512 B, 64 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"
