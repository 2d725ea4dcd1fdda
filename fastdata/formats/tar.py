"""tar: a folder of shards `NAME-000000.tar` ... with `index.fastdata` and `manifest.json`, or one `X.tar`.

Plain webdataset reads both. One `.tar` carries its index and manifest in a last member that webdataset skips; that
member's last block, at a fixed distance from the end of the file, says where they lie:

    ... | header of __fastdata_index__ | index | manifest | padding | footer (512) | end of archive (1024)

Every header of ours names `fastdata` as the owner: a shard with this mark but without its manifest is refused, never
read as foreign. Tars that others wrote are scanned once, headers only, in memory.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from fastdata.errors import FormatError
from fastdata.formats.base import READ_OPTIONS, Reader, ReadOptions
from fastdata.formats.concat import ConcatReader, SliceReader
from fastdata.formats.files import CheckedFile, DataFiles, Scratch, map_file, stamp_at
from fastdata.formats.index import INDEX_NAME, IndexBuilder, unpack
from fastdata.formats.opening import check_files, check_index, load, load_index, manifest_in, read_manifest
from fastdata.formats.packed import Packed, PackedReader
from fastdata.formats.rows import Rows
from fastdata.formats.verify import Problem, name_of
from fastdata.manifest import MANIFEST_NAME, Manifest
from fastdata.record import foreign_label

BLOCK = 512
END = bytes(2 * BLOCK)
MARK = b"fastdata"
INDEX_MEMBER = "__fastdata_index__"
FOOTER = b"FDTAREND"
# Octal digits of a ustar header's size field: 8 GiB. Longer names than 100 bytes go into PAX records.
_USTAR_MAX, _NAME_BYTES = 8**11 - 1, 100
# The names that webdataset skips.
_META = re.compile(r"__[^/]*__($|/)")
_OWNER = slice(265, 265 + len(MARK) + 1)  # the owner's name in a tar header, with its NUL


def open_tar(path: str, options: ReadOptions = READ_OPTIONS) -> Reader:
    """Open a folder of shards or one tar, ours or foreign.

    Raises:
        FormatError: unfinished, cut or changed since it was written, compressed, or no tar.
    """
    if not os.path.isdir(path):
        return open_tars([path], options)
    manifest = read_manifest(path, "tar")
    if manifest is not None:
        files, stamps = check_files(path, manifest)
        if not files or os.path.basename(files[-1]) != INDEX_NAME:
            raise FormatError(f"{path}: damaged manifest: no {INDEX_NAME} in its files; convert the data again")
        lengths = [stamp.length for stamp in stamps[:-1]]
        columns, check = load_index(files[-1], stamps[-1], manifest, lengths)
        reopen = partial(open_tar, options=options)
        return PackedReader(
            Packed(
                path, manifest, columns, files[:-1], lengths, reopen, stamps[:-1], _check_rest, options,
                check_columns=check,
            )
        )  # fmt: skip
    if os.path.exists(os.path.join(path, INDEX_NAME)):
        raise _incomplete(path)
    return open_tars(sorted(os.path.join(path, name) for name in os.listdir(path) if is_tar_name(name)), options)


def is_tar_name(name: str) -> bool:
    """Whether a file in a folder is taken for a shard."""
    return name.endswith(".tar") and not name.startswith(".")


def open_tars(paths: Sequence[str], options: ReadOptions = READ_OPTIONS) -> Reader:
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
            parts.append(_open_foreign(tuple(foreign), options))
            foreign = []
        single = _open_single(path, options)
        # an empty reader is false
        parts.append(_open_shard(path, folders, options) if single is None else single)
    if foreign:
        parts.append(_open_foreign(tuple(foreign), options))
    return parts[0] if len(parts) == 1 else ConcatReader(parts)


def _is_ours(path: str) -> bool:
    with CheckedFile(path) as file:
        head = file.read(0, BLOCK)
    if head[:2] == b"\x1f\x8b" or head[:6] == b"\xfd7zXZ\x00" or head[:3] == b"BZh" or head[:4] == b"\x28\xb5\x2f\xfd":
        raise FormatError(f"{path}: a compressed tar cannot be read in place; decompress it first")
    return head[_OWNER] == MARK + b"\0"


def _open_single(path: str, options: ReadOptions) -> PackedReader | None:
    """One tar of ours with its index inside; None where it has none."""
    with CheckedFile(path) as file:
        if file.length < 3 * BLOCK + len(END):
            return None
        footer = file.read(file.length - len(END) - BLOCK, BLOCK).rstrip(b"\0").split()
        if len(footer) != 4 or footer[0] != FOOTER or not all(word.isdigit() for word in footer[1:]):
            return None
        start, middle, end = (int(word) for word in footer[1:])
        manifest = manifest_in(file, middle, end, "tar")
        loaded = load(file, [(start, middle - start)])
    columns, lengths = unpack(loaded.parts[0], path), [file.length]
    check_index(columns, manifest, lengths, path)
    reopen = partial(open_tar, options=options)
    return PackedReader(
        Packed(
            path, manifest, columns, [path], lengths, reopen, [file.stamp], _check_rest, options,
            check_columns=loaded.check,
        )
    )  # fmt: skip


def _open_shard(path: str, folders: dict[str, PackedReader], options: ReadOptions) -> Reader:
    """One shard of a folder of ours: the part of the folder's records that lies in it."""
    folder, name = os.path.split(path)
    if folder not in folders:
        if read_manifest(folder, "tar") is None:
            raise _incomplete(path)
        folders[folder] = cast("PackedReader", open_tar(folder, options))
    rows = folders[folder].rows_in_file(name)
    if rows is None:
        raise FormatError(
            f"{path}: a fastdata shard that the {MANIFEST_NAME} beside it does not list; copy the whole folder again"
        )
    return SliceReader(folders[folder], rows.start, rows.stop)


def _incomplete(path: str) -> FormatError:
    return FormatError(
        f"{path}: written by fastdata, but its {MANIFEST_NAME} is missing, at its end or beside it: the file was cut, "
        "or only a part of a folder copied, or conversion was never finished; copy all of it again, or convert again"
    )


def header(name: str, size: int) -> bytes:
    """A tar header that depends on name and size alone: ustar, with one PAX record for a long or non-ASCII name."""
    raw = name.encode("utf-8")
    if len(raw) <= _NAME_BYTES and name.isascii() and size <= _USTAR_MAX:
        return _block(raw, size, b"0")
    records = _pax(b"path", raw) + (_pax(b"size", b"%d" % size) if size > _USTAR_MAX else b"")
    pax = _block(b"././@PaxHeader", len(records), b"x") + records.ljust(padded(len(records)), b"\0")
    plain = name.encode("ascii", "replace")[:_NAME_BYTES]  # for programs that know no PAX
    return pax + _block(plain, size if size <= _USTAR_MAX else 0, b"0")


def _block(name: bytes, size: int, kind: bytes) -> bytes:
    numbers = b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"%011o\0" % 0  # mode, owner, group, size, time
    owner = MARK.ljust(32, b"\0")
    rest = kind + bytes(100) + b"ustar\x0000" + owner * 2 + b"0000000\0" * 2  # link name, magic, owners, device
    head = name.ljust(100, b"\0") + numbers + b" " * 8 + rest
    return (head[:148] + b"%06o\0 " % sum(head) + head[156:]).ljust(BLOCK, b"\0")


def _pax(name: bytes, value: bytes) -> bytes:
    """A PAX record: its own length, as decimal digits that count themselves, the name and the value."""
    bare = len(name) + len(value) + 3  # a space, an equals sign and a newline
    length = bare + len(str(bare))
    length = bare + len(str(length))
    return b"%d %s=%s\n" % (length, name, value)


def padded(size: int) -> int:
    """A size rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _check_rest(packed: Packed, rows: range) -> Iterator[Problem]:
    """What plain tar readers go by: is the header of each member, and what fills its last block, as it was written?"""
    names = packed.manifest.fields
    rows_of = Rows(packed.columns)
    start, field, file, offset, size = (packed.columns[name] for name in ("start", "field", "file", "offset", "size"))
    blobs, scratch = DataFiles(packed.files, packed.lengths, packed.stamps), Scratch()
    for row in rows:
        key = rows_of.keys[row]
        for blob in range(int(start[row]), int(start[row + 1])):
            begin, end = int(offset[blob]), int(offset[blob]) + int(size[blob])
            head = header(f"{key}.{names[field[blob]]}", end - begin)
            there = blobs.read(int(file[blob]), begin - len(head), len(head), scratch) == head
            if not there or any(blobs.read(int(file[blob]), end, padded(end) - end, scratch)):
                words = f"field {names[field[blob]]!r}: the tar header or filling around it has changed"
                yield Problem(row, name_of(rows_of.keys, row), words)


def _open_foreign(paths: tuple[str, ...], options: ReadOptions) -> PackedReader:
    builder = IndexBuilder()
    stamps = [stamp_at(path) for path in paths]
    lengths = [stamp.length for stamp in stamps]
    for number, path in enumerate(paths):
        buffer = map_file(path, lengths[number], stamps[number])
        for key, members in _samples(path):
            label = -1
            if "cls" in members:
                offset, size = members["cls"]
                label = foreign_label(buffer[offset : offset + size])
            places = [(number, offset) for offset, _ in members.values()]
            builder.add_scanned(key, "", label, list(members), places, [size for _, size in members.values()])
    manifest = Manifest("tar", len(builder), tuple(builder.fields))
    path = paths[0] if len(paths) == 1 else os.path.dirname(paths[0])
    reopen = partial(_reopen_foreign, paths, options)
    return PackedReader(Packed(path, manifest, builder.columns(), paths, lengths, reopen, stamps, options=options))


def _reopen_foreign(paths: tuple[str, ...], options: ReadOptions, _path: str) -> PackedReader:
    return _open_foreign(paths, options)


def _samples(path: str) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """(key, {field: (offset, size)}) of neighbouring members, grouped as webdataset does.

    The key ends at the first dot of the last part of the name; fields are lower-cased; names that start with a dot or
    are in double underscores (`__meta__`) are skipped.
    """
    current, members = "", dict[str, tuple[int, int]]()
    for member in _members(path):
        head, slash, base = member.name.rpartition("/")
        stem, dot, field = base.partition(".")
        if not member.isreg() or not dot or not stem or _META.match(member.name):
            continue
        if member.issparse():
            raise FormatError(f"{path}: member {member.name!r} is stored with holes; rewrite the tar without --sparse")
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
            _check_end(path, tar.offset)
    except tarfile.TarError as error:
        raise FormatError(f"{path}: no readable tar ({error})") from error


def _check_end(path: str, place: int) -> None:
    """Refuse a tar whose members end without the mark that ends an archive; tarfile takes that for an end."""
    with CheckedFile(path) as file:
        block = file.read(place, BLOCK)
    if len(block) < BLOCK or any(block):
        what = "the end-of-archive mark is missing" if not block else "what follows the last whole member is no header"
        raise FormatError(
            f"{path}: cut or damaged at byte {place}: {what}; copy the tar again from a whole one, or rewrite it"
        )
