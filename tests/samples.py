"""Data sets for the tests of formats: the same records, written in every format.

`LAYOUTS` names each way in which a data set can lie on the disk; `write` makes one, and `RECORDS` is what most tests
put into it: small, odd blobs that are not images, so that only formats are tested.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastdata
from fastdata import Record
from fastdata.converters.writers import create
from fastdata.formats.base import Reader
from tests import images

# Layout -> the name of a data set with it.
LAYOUTS = {"lmdb": "data.lmdb", "hdf5": "data.h5", "tar": "data.tar", "shards": "data"}
CLASSES = ("cat", "dog", "Ä\udcff/ugly")
# So small that RECORDS need several shards.
SHARD_SIZE = 8_000


def payload(number: int, size: int) -> bytes:
    """Bytes that look random and end in NULs."""
    block = bytes((number * 31 + i * 7 + (i >> 8) * 13) % 251 for i in range(max(size - 2, 0)))
    return block + bytes(size - len(block))


def record(number: int, size: int) -> Record:
    label = number % len(CLASSES)
    key = f"{('cat', 'dog', 'é/ñ')[label]}/{number}"
    fields = {"jpg": payload(number, size), "cls": b"%d" % label}
    if number % 5 == 0:  # not every record has the same fields
        fields |= {"mask.png": payload(number, 5), "json": b"{}"}
    return Record(key, fields, f"{key} \udcfe.JPG")


# Sizes around what matters: empty, one byte, a tar block, an LMDB page with and without its head.
SIZES = (0, 1, 2, 511, 512, 513, 1999, 2000, 4080, 4081, 4096, 4097, 9000, 100, 200, 300, 12_345)
RECORDS = tuple(record(number, size) for number, size in enumerate(SIZES))


def place(folder: Path, layout: str) -> str:
    return str(folder / LAYOUTS[layout])


def write(folder: Path, layout: str, records: Iterable[Record] = RECORDS, **options: Any) -> str:
    """Write a data set of this layout below `folder`; returns its path."""
    path = place(folder, layout)
    options = {"classes": CLASSES, "shard_size": SHARD_SIZE, **options}
    with create(path, format="tar" if layout == "shards" else None, **options) as writer:
        for item in records:
            writer.write(item)
    return path


def plain_images(path: Path, count: int = 24, *, damaged: Container[int] = ()) -> str:
    """Write PNGs of 16 x 16 pixels, each of one colour: red, green and blue are its index, which is its label, too.

    So a transform or a test can recognize the record. Those that are `damaged` are truncated.
    """
    with create(path) as writer:
        for i in range(count):
            blob = images.png(np.full((16, 16, 3), i, np.uint8))
            writer.write(Record(f"r/{i}", {"png": blob[:30] if i in damaged else blob, "cls": b"%d" % i}))
    return str(path)


def files(path: str | Path) -> dict[str, bytes]:
    """Every file of a data set: name below it ("" for a single file) -> content."""
    root = Path(path)
    if root.is_file():
        return {"": root.read_bytes()}
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def content(reader: Reader) -> list[tuple[str, dict[str, bytes], str]]:
    """Everything that a reader returns about its records."""
    return [(item.key, dict(item.fields), item.path) for item in (reader[i] for i in range(len(reader)))]


def expected(records: Sequence[Record] = RECORDS) -> list[tuple[str, dict[str, bytes], str]]:
    return [(item.key, dict(item.fields), item.path) for item in records]


def read(path: str) -> list[tuple[str, dict[str, bytes], str]]:
    with fastdata.open(path) as reader:
        return content(reader)
