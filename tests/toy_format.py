"""A format of nothing but the tests: what a new format has to bring, its reader and its sink, beside its entry.

TOYSET\\n | every blob, end to end | index | manifest | where index and manifest begin, 20 digits each
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from fastdata.converters.writers.base import SinkOptions, finished, sized
from fastdata.errors import FormatError
from fastdata.formats import Format
from fastdata.formats.base import READ_OPTIONS, Reader, ReadOptions
from fastdata.formats.concat import ConcatReader
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import IndexBuilder, pack, unpack
from fastdata.formats.opening import check_index, load, manifest_in
from fastdata.formats.packed import Packed, PackedReader
from fastdata.manifest import DataFile, Manifest
from fastdata.record import Record

MAGIC = b"TOYSET\n"
FOOTER = 40


def open_toy(path: str, options: ReadOptions = READ_OPTIONS) -> PackedReader:
    with CheckedFile(path) as file:
        footer = file.read(max(0, file.length - FOOTER), FOOTER)
        if file.read(0, len(MAGIC)) != MAGIC or not footer.isdigit():
            raise FormatError(f"{path}: not a whole toy")
        start, middle = int(footer[:20]), int(footer[20:])
        manifest = manifest_in(file, middle, file.length - FOOTER, "toy")
        columns = unpack(load(file, [(start, middle - start)]).parts[0], path)
    check_index(columns, manifest, [file.length], path)
    reopen = partial(open_toy, options=options)
    return PackedReader(Packed(path, manifest, columns, [path], [file.length], reopen, [file.stamp], options=options))


def open_toys(paths: Sequence[str], options: ReadOptions) -> Reader:
    return ConcatReader([open_toy(path, options) for path in paths])


def open_whole_toys(paths: Sequence[str], options: ReadOptions) -> tuple[Reader, list[tuple[str, str]]]:
    parts, lost = list[Reader](), list[tuple[str, str]]()
    for path in paths:
        try:
            parts.append(open_toy(path, options))
        except (FormatError, FileNotFoundError) as error:
            lost.append((path, str(error)))
    return ConcatReader(parts), lost


class ToySink:
    def __init__(self, options: SinkOptions) -> None:
        self._file = open(options.new, "xb")  # noqa: SIM115  # closed by abort
        self._file.write(MAGIC)

    def add(self, record: Record) -> list[tuple[int, int]]:
        locations = []
        for blob in record.fields.values():
            locations.append((0, self._file.tell()))
            self._file.write(blob)
        return locations

    def finish(self, builder: IndexBuilder, manifest: Manifest) -> None:
        columns = builder.columns()
        start, index = self._file.tell(), b"".join(pack(columns))
        middle = start + len(index)
        text = sized(
            lambda total: finished(manifest, builder, columns, [DataFile("", total)]),
            lambda room: middle + room + FOOTER,
        )
        self._file.write(index + text + b"%020d%020d" % (start, middle))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abort(self) -> None:
        self._file.close()


ENTRY = Format(
    name="toy",
    one="a toy",
    several="toys",
    reader="tests.toy_format:open_toy",
    suffixes=(".toy",),
    magic=((0, MAGIC),),
    open_many="tests.toy_format:open_toys",
    open_whole="tests.toy_format:open_whole_toys",
    sink="tests.toy_format:ToySink",
)
