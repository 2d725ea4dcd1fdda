"""Foreign tars: their headers are scanned once, and their members grouped into records as webdataset groups them.

The index is kept in memory; nothing is written beside the data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial

from fastdata.codec.sniff import SNIFF_BYTES, sniff
from fastdata.errors import FormatError
from fastdata.formats.base import ReadOptions
from fastdata.formats.files import DataFiles, Scratch, stamp_at
from fastdata.formats.foreign import ForeignIndex
from fastdata.formats.labels import Blob, Fields, Read
from fastdata.formats.packed import Packed, PackedReader
from fastdata.formats.tar_members import Member, members
from fastdata.manifest import MANIFEST_NAME, Manifest

# The owner's name in every header of ours.
MARK = b"fastdata"
# The names that webdataset skips.
_META = re.compile(r"__[^/]*__($|/)")
# Documents that an archive may hold beside its records.
_DOCUMENT = re.compile(
    r"(?:read_?me|licen[cs]e|copying|notice|change_?log|citation|authors|contributing|about|version)"
    r"(?:\.(?:md|txt|rst|html?|pdf|cff|bib))?",
    re.IGNORECASE,
)


def open_foreign(paths: tuple[str, ...], options: ReadOptions) -> PackedReader:
    """Open foreign tars, one after the other, as one data set.

    Raises:
        FormatError: cut, damaged, of ours but incomplete, or with members that are not records with an image.
    """
    stamps = [stamp_at(path) for path in paths]
    lengths = [stamp.length for stamp in stamps]
    path = paths[0] if len(paths) == 1 else os.path.dirname(paths[0])
    files, scratch = DataFiles(paths, lengths, stamps), Scratch()
    read: Read = lambda blob: bytes(files.read(*blob, scratch))  # noqa: E731
    index = ForeignIndex(path, "records", options.image_field, options.label_field, read)
    try:
        for number, each in enumerate(paths):
            for key, fields in _records(number, each, index, read):
                index.add(key, fields)
        builder = index.finish(sorted({os.path.dirname(each) for each in paths}))
    finally:
        files.close()
    manifest = Manifest("tar", len(builder), tuple(builder.fields))
    reopen = partial(_reopen, paths, options)
    return PackedReader(Packed(path, manifest, builder.columns(), paths, lengths, reopen, stamps, options=options))


def incomplete(path: str) -> FormatError:
    """The error for a tar of ours without its manifest."""
    return FormatError(
        f"{path}: written by fastdata, but its {MANIFEST_NAME} is missing, at its end or beside it: the file was cut, "
        "or only a part of a folder copied, or the conversion never finished; copy all of it again, or convert again"
    )


def _reopen(paths: tuple[str, ...], options: ReadOptions, _path: str) -> PackedReader:
    return open_foreign(paths, options)


def _records(number: int, path: str, index: ForeignIndex, read: Read) -> Iterator[tuple[str, Fields]]:
    """(key, fields) of neighbouring members of one tar, grouped as webdataset does.

    The key ends at the first dot of the last part of the name; fields are lower-cased; names that start with a dot or
    are in double underscores (`__meta__`) are skipped, and so are documents about the archive. A member without a dot
    is not a record; if it is an image all the same, or if all members are like it, it is counted as a record without
    an image.
    """
    current, fields, others, found = "", dict[str, Blob](), "", False
    for member in members(path):
        if member.owner == MARK:
            raise incomplete(path)
        key, field = _split(member)
        if not field:
            others = others or repr(member.name)
            if _is_bare_image(member, number, read):
                index.add_other(f"{member.name!r}, whose name has no suffix")
            continue
        if key != current and fields:
            yield current, fields
            fields = {}
        if field in fields:
            raise FormatError(f"{path}: sample {key!r} has field {field!r} twice, which webdataset refuses too")
        current, found = key, True
        fields[field] = Blob(number, member.offset, member.size)
    if fields:
        yield current, fields
    if others and not found:
        index.add_other(f"all of {path}, where {others} is not a member KEY.FIELD")


def _split(member: Member) -> tuple[str, str]:
    """The key and field of a member, "" if it is not part of a record."""
    head, slash, base = member.name.rpartition("/")
    stem, dot, field = base.partition(".")
    if not member.regular or not dot or not stem or _META.match(member.name) or _DOCUMENT.fullmatch(base):
        return "", ""
    return head + slash + stem, field.lower()


def _is_bare_image(member: Member, number: int, read: Read) -> bool:
    """Whether a member without a suffix is an image."""
    base = member.name.rpartition("/")[2]
    if not member.regular or "." in base or _META.match(member.name) or not member.size:
        return False
    return sniff(read(Blob(number, member.offset, min(member.size, SNIFF_BYTES)))) is not None
