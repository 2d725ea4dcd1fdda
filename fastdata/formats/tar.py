"""tar: a folder of shards `NAME-000000.tar` ... with `index.fastdata` and `manifest.json`, or one `X.tar`.

Plain webdataset reads both. One `.tar` carries its index and manifest in a last member that webdataset skips; that
member's last block, at a fixed distance from the end of the file, says where they lie:

    ... | header of __fastdata_index__ | index | manifest | padding | footer (512) | end of archive (1024)

Every header of ours names `fastdata` as the owner: a shard with this mark but without its manifest is refused, never
read as foreign. Tars that others wrote are scanned once, headers only, in memory.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial

from fastdata.errors import FormatError, RecordError
from fastdata.formats.base import (
    Packed,
    PackedReader,
    Reader,
    check_lengths,
    checked_format,
    map_file,
    read_manifest,
    wrong_length,
)
from fastdata.formats.concat import ConcatReader, SliceReader
from fastdata.formats.index import INDEX_NAME, IndexBuilder, unpack
from fastdata.manifest import MANIFEST_NAME, Manifest
from fastdata.record import parse_label

BLOCK = 512
END = bytes(2 * BLOCK)
MARK = b"fastdata"
INDEX_MEMBER = "__fastdata_index__"
FOOTER = b"FDTAREND"
_OWNER = slice(265, 265 + len(MARK) + 1)  # the owner's name in a tar header, with its NUL


def open_tar(path: str) -> Reader:
    """Open a folder of shards or one tar, ours or foreign.

    Raises:
        FormatError: unfinished, cut or changed since it was written, compressed, or no tar.
    """
    if not os.path.isdir(path):
        return open_tars([path])
    if os.path.exists(os.path.join(path, MANIFEST_NAME)):
        manifest = read_manifest(path, "tar")
        files, lengths = check_lengths(path, manifest)
        if not files or os.path.basename(files[-1]) != INDEX_NAME:
            raise FormatError(f"{path}: damaged manifest: no {INDEX_NAME} in its files; convert the data again")
        columns = unpack(map_file(files[-1], lengths[-1]), files[-1])
        return PackedReader(Packed(path, manifest, columns, files[:-1], lengths[:-1], open_tar))
    if os.path.exists(os.path.join(path, INDEX_NAME)):
        raise _incomplete(path)
    return open_tars(sorted(os.path.join(path, name) for name in os.listdir(path) if is_tar_name(name)))


def is_tar_name(name: str) -> bool:
    """Whether a file in a folder is taken for a shard."""
    return name.endswith(".tar") and not name.startswith(".")


def open_tars(paths: Sequence[str]) -> Reader:
    """Open a list of tars, in this order, as one: ours (whole, or shards of one folder) and foreign ones alike."""
    if not paths:
        raise FormatError("no tar files to read")
    parts: list[Reader] = []
    foreign: list[str] = []
    folders: dict[str, PackedReader] = {}
    for path in paths:
        if not _is_ours(path):
            foreign.append(path)
            continue
        if foreign:
            parts.append(_open_foreign(tuple(foreign)))
            foreign = []
        parts.append(_open_single(path) or _open_shard(path, folders))
    if foreign:
        parts.append(_open_foreign(tuple(foreign)))
    return parts[0] if len(parts) == 1 else ConcatReader(parts)


def _is_ours(path: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(BLOCK)
    if head[:2] == b"\x1f\x8b" or head[:6] == b"\xfd7zXZ\x00" or head[:3] == b"BZh" or head[:4] == b"\x28\xb5\x2f\xfd":
        raise FormatError(f"{path}: a compressed tar cannot be read in place; decompress it first")
    return head[_OWNER] == MARK + b"\0"


def _open_single(path: str) -> PackedReader | None:
    """One tar of ours with its index inside; None where it has none."""
    length = os.stat(path).st_size
    if length < 3 * BLOCK + len(END):
        return None
    buffer = map_file(path, length)
    footer = bytes(buffer[length - len(END) - BLOCK : length - len(END)]).rstrip(b"\0").split()
    if len(footer) != 4 or footer[0] != FOOTER or not all(word.isdigit() for word in footer[1:]):
        return None
    start, middle, end = (int(word) for word in footer[1:])
    manifest = checked_format(Manifest.from_json(bytes(buffer[middle:end]), path), "tar", path)
    if [f.bytes for f in manifest.files] != [length]:
        raise wrong_length(path, length, manifest.files[0].bytes if manifest.files else 0)
    columns = unpack(buffer[start:middle], path)
    return PackedReader(Packed(path, manifest, columns, [path], [length], open_tar))


def _open_shard(path: str, folders: dict[str, PackedReader]) -> Reader:
    """One shard of a folder of ours: the part of the folder's records that lies in it."""
    folder, name = os.path.split(path)
    if not os.path.exists(os.path.join(folder, MANIFEST_NAME)):
        raise _incomplete(path)
    if folder not in folders:
        whole = open_tar(folder)
        if not isinstance(whole, PackedReader):
            raise _incomplete(path)
        folders[folder] = whole
    rows = folders[folder].rows_in_file(name)
    if rows is None:
        raise FormatError(
            f"{path}: a fastdata shard that the {MANIFEST_NAME} beside it does not list; copy the whole folder again"
        )
    return SliceReader(folders[folder], rows.start, rows.stop)


def _incomplete(path: str) -> FormatError:
    return FormatError(
        f"{path}: written by fastdata, but its {MANIFEST_NAME} is missing: conversion was never finished, or only a "
        "part was copied; convert the data again, or copy the whole folder"
    )


def _open_foreign(paths: tuple[str, ...]) -> PackedReader:
    builder = IndexBuilder()
    lengths = [os.stat(path).st_size for path in paths]
    for number, path in enumerate(paths):
        buffer = map_file(path, lengths[number])
        for key, members in _samples(path):
            label = -1
            if "cls" in members:
                offset, size = members["cls"]
                label = _foreign_label(key, buffer[offset : offset + size])
            places = [(number, offset) for offset, _ in members.values()]
            builder.add_scanned(key, "", label, list(members), places, [size for _, size in members.values()])
    manifest = Manifest("tar", len(builder), tuple(builder.fields))
    path = paths[0] if len(paths) == 1 else os.path.dirname(paths[0])
    return PackedReader(Packed(path, manifest, builder.columns(), paths, lengths, partial(_reopen_foreign, paths)))


def _reopen_foreign(paths: tuple[str, ...], _path: str) -> PackedReader:
    return _open_foreign(paths)


def _foreign_label(key: str, blob: memoryview) -> int:
    try:
        return parse_label(key, blob)
    except RecordError:
        return -1


def _samples(path: str) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """(key, {field: (offset, size)}) of neighbouring members, grouped as webdataset does.

    The key ends at the first dot of the last part of the name; fields are lower-cased; names that start with a dot or
    with `__` are skipped.
    """
    current, members = "", dict[str, tuple[int, int]]()
    for member in _members(path):
        head, slash, base = member.name.rpartition("/")
        stem, dot, field = base.partition(".")
        if not member.isreg() or not dot or not stem or member.name.startswith("__"):
            continue
        key, field = head + slash + stem, field.lower()
        if key != current and members:
            yield current, members
            members = {}
        if field in members:
            raise FormatError(f"{path}: sample {key!r} has field {field!r} twice, which webdataset refuses too")
        current = key
        members[field] = (member.offset_data, member.size)
    if members:
        yield current, members


def _members(path: str) -> Iterator[tarfile.TarInfo]:
    try:
        with tarfile.open(path, "r:") as tar:
            length = os.stat(path).st_size
            while (member := tar.next()) is not None:
                if member.offset_data + member.size > length:
                    raise FormatError(f"{path}: cut in member {member.name!r}; copy the tar again from a whole one")
                yield member
                tar.members = []  # type: ignore[attr-defined]  # tarfile keeps every header it has seen: a memory leak in a long scan
    except tarfile.TarError as error:
        raise FormatError(f"{path}: no readable tar ({error})") from error
