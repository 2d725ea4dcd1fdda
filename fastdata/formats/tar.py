"""tar: a folder of shards `NAME-000000.tar` ... with `index.fastdata` and `manifest.json`, or one `X.tar`.

Plain webdataset reads both. One `.tar` carries its index and manifest in a last member that webdataset skips; that
member's last block, at a fixed distance from the end of the file, says where they lie:

    ... | header of __fastdata_index__ | index | manifest | padding | footer (512) | end of archive (1024)

Every header that we write names `fastdata` as the owner: a shard with this mark but without its manifest is refused,
never read as foreign. Of foreign tars, the headers are scanned once when they are opened.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np

from fastdata.errors import FormatError, resource_error
from fastdata.formats.base import READ_OPTIONS, Reader, ReadOptions
from fastdata.formats.concat import ConcatReader, SliceReader
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import INDEX_NAME, unpack
from fastdata.formats.opening import (
    absent_files,
    any_manifest,
    check_files,
    check_index,
    load,
    load_index,
    manifest_in,
    read_manifest,
)
from fastdata.formats.packed import Packed, PackedReader
from fastdata.formats.rows import Rows
from fastdata.formats.tar_foreign import MARK, incomplete, open_foreign
from fastdata.formats.tar_members import BLOCK, padded
from fastdata.formats.verify import DATA_SET, Problem, check_index_file, name_of
from fastdata.manifest import MANIFEST_NAME

END = bytes(2 * BLOCK)
INDEX_MEMBER = "__fastdata_index__"
FOOTER = b"FDTAREND"
# Octal digits of a ustar header's size field: 8 GiB. Longer names than 100 bytes go into PAX records.
_USTAR_MAX, _NAME_BYTES = 8**11 - 1, 100
_OWNER = slice(265, 265 + len(MARK) + 1)  # the owner's name in a tar header, with its NUL


def open_tar(path: str, options: ReadOptions = READ_OPTIONS, absent: Collection[str] = ()) -> Reader:
    """Open a folder of shards or one tar, ours or foreign; `absent` names shards that will not be read.

    Raises:
        FormatError: unfinished, cut or changed since it was written, compressed, or not a tar.
    """
    if not os.path.isdir(path):
        return open_tars([path], options)
    manifest = read_manifest(path, "tar")
    if manifest is not None:
        files, stamps = check_files(path, manifest, absent)
        if not files or os.path.basename(files[-1]) != INDEX_NAME:
            raise FormatError(f"{path}: damaged manifest: no {INDEX_NAME} in its files; convert the data again")
        lengths = [stamp.length for stamp in stamps[:-1]]
        columns, check = load_index(files[-1], stamps[-1], manifest, lengths)
        reopen = partial(open_tar, options=options, absent=absent)
        return PackedReader(
            Packed(
                path, manifest, columns, files[:-1], lengths, reopen, stamps[:-1], _check_rest, options,
                check_columns=check,
            )
        )  # fmt: skip
    if os.path.exists(os.path.join(path, INDEX_NAME)):
        raise incomplete(path)
    return open_tars(sorted(os.path.join(path, name) for name in os.listdir(path) if is_tar_name(name)), options)


def is_tar_name(name: str) -> bool:
    """Whether a file of this name in a folder is a shard."""
    return name.endswith(".tar") and not name.startswith(".")


def open_tars(paths: Sequence[str], options: ReadOptions = READ_OPTIONS) -> Reader:
    """Open a list of tars as one data set, in this order: single tars and shards of ours, and foreign ones."""
    if not paths:
        raise FormatError("no tar files to read")
    parts: list[Reader] = []
    foreign: list[str] = []
    shards = _Shards(options)
    for path in paths:
        single = _open_single(path, options)
        part = shards.open(path) if single is None else single  # an empty reader is false
        if part is None:
            foreign.append(path)
            continue
        if foreign:
            parts.append(open_foreign(tuple(foreign), options))
            foreign = []
        parts.append(part)
    if foreign:
        parts.append(open_foreign(tuple(foreign), options))
    return parts[0] if len(parts) == 1 else ConcatReader(parts)


def open_whole_tars(paths: Sequence[str], options: ReadOptions = READ_OPTIONS) -> tuple[Reader, list[tuple[str, str]]]:
    """As `open_tars`, without those that are missing or damaged; list these as (path, reason).

    Raises:
        FormatError: none of them is intact.
    """
    parts, lost, shards = list[Reader](), list[tuple[str, str]](), _Shards(options, lenient=True)
    for path in paths:
        try:
            single = _open_single(path, options)
            part = shards.open(path) if single is None else single
            parts.append(open_foreign((path,), options) if part is None else part)
        except (FormatError, FileNotFoundError) as error:
            if resource_error(error) is not None:
                raise
            lost.append((path, str(error).removeprefix(f"{path}: ")))
    if not parts:
        first = f"; the first one, {lost[0][0]}: {lost[0][1]}" if lost else ""
        raise FormatError(f"none of {len(lost)} shards can be read{first}")
    return parts[0] if len(parts) == 1 else ConcatReader(parts), lost


def _open_single(path: str, options: ReadOptions) -> PackedReader | None:
    """Open one tar of ours with its index inside; None if it has none."""
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


class _Shards:
    """Shards of ours that are given one by one: for each, the records of its folder that lie in it.

    A shard is ours if the manifest of its folder lists it, even if its first bytes, which would show it, are lost. If
    `lenient`, only the shards that are given must be intact.
    """

    def __init__(self, options: ReadOptions, *, lenient: bool = False) -> None:
        self._options, self._lenient = options, lenient
        self._absent: dict[str, dict[str, FormatError]] = {}
        self._listed: dict[str, set[str] | None] = {}
        self._opened: dict[str, PackedReader] = {}

    def open(self, path: str) -> SliceReader | None:
        """The records of a shard; None if it is not one of ours.

        Raises:
            FormatError: it is ours, and the manifest is missing or does not list it; or compressed.
        """
        folder, name = os.path.split(path)
        if folder not in self._listed:
            manifest = any_manifest(folder)
            ours = manifest is not None and manifest.format == "tar"
            self._listed[folder] = {file.name for file in manifest.files} if manifest and ours else None
            self._absent[folder] = absent_files(folder, manifest) if manifest and ours and self._lenient else {}
        listed = self._listed[folder]
        if listed is None or name not in listed:
            _refuse_ours(path, listed is not None)
            return None
        if name in (absent := self._absent[folder]):
            raise absent[name]
        if folder not in self._opened:
            whole = open_tar(folder, self._options, frozenset(absent) - {INDEX_NAME})
            self._opened[folder] = cast("PackedReader", whole)
        rows = self._opened[folder].rows_in_file(name)
        if rows is None:
            raise FormatError(f"{path}: damaged manifest: its index does not contain this file; convert the data again")
        return SliceReader(self._opened[folder], rows.start, rows.stop)


def _refuse_ours(path: str, manifest: bool) -> None:
    with CheckedFile(path) as file:
        head = file.read(0, BLOCK)
    if head[:2] == b"\x1f\x8b" or head[:6] == b"\xfd7zXZ\x00" or head[:3] == b"BZh" or head[:4] == b"\x28\xb5\x2f\xfd":
        raise FormatError(f"{path}: a compressed tar cannot be read in place; decompress it first")
    if head[_OWNER] != MARK + b"\0":
        return
    if not manifest:
        raise incomplete(path)
    raise FormatError(
        f"{path}: a fastdata shard that the {MANIFEST_NAME} beside it does not list; copy the whole folder again"
    )


def header(name: str, size: int) -> bytes:
    """A tar header that depends on name and size alone: ustar, with one PAX record for a long or non-ASCII name."""
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) <= _NAME_BYTES and name.isascii() and size <= _USTAR_MAX:
        return _block(raw, size, b"0")
    records = _pax(b"path", raw) + (_pax(b"size", b"%d" % size) if size > _USTAR_MAX else b"")
    pax = _block(b"././@PaxHeader", len(records), b"x") + records.ljust(padded(len(records)), b"\0")
    plain = name.encode("ascii", "replace")[:_NAME_BYTES]  # for programs without PAX
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


def footer(start: int, middle: int, end: int) -> bytes:
    """The last block of the index member: the offsets of the index, of the manifest behind it, and of its end."""
    return b" ".join([FOOTER, b"%d" % start, b"%d" % middle, b"%d" % end]).ljust(BLOCK, b"\0")


def _check_rest(packed: Packed, rows: range) -> Iterator[Problem]:
    """Check that everything plain tar readers rely on is unchanged: headers, padding, the end of each file."""
    start, numbers = packed.columns["start"], packed.columns["file"]
    files = range(len(packed.files))
    if len(rows) < packed.manifest.count:  # some shards of a folder
        files = np.unique(numbers[int(start[rows.start]) : int(start[rows.stop])]).tolist()
    for number in files:
        with CheckedFile(packed.files[number], packed.lengths[number], packed.stamps[number]) as file:
            end = yield from _check_members(packed, file, number)
            if packed.files[number] == packed.path:
                yield from _check_trailer(packed, file, end)
            elif file.read(end, file.length) != bytes(-end % BLOCK) + END:
                yield Problem(DATA_SET, file.path, "what follows the last member is not the end of a tar")
    if packed.files != [packed.path] and rows.start == 0:  # once, not with each shard
        yield from check_index_file(os.path.join(packed.path, INDEX_NAME), packed.manifest)


def _check_members(packed: Packed, file: CheckedFile, number: int) -> Generator[Problem, None, int]:
    """Check the header and padding before each member of a file; return the end of the last member."""
    names, keys = packed.manifest.fields, Rows(packed.columns).keys
    start, field, offset, size = (
        memoryview(packed.columns[name])  # type: ignore[arg-type]  # numpy's stubs do not know arrays as buffers yet
        for name in ("start", "field", "offset", "size")
    )
    first, last = np.searchsorted(packed.columns["file"], np.array([number, number + 1], np.int32)).tolist()
    row, end = int(np.searchsorted(packed.columns["start"], first, side="right")) - 1, 0
    for blob in range(first, last):
        while start[row + 1] <= blob:
            row += 1
        name = names[field[blob]]
        wanted = bytes(-end % BLOCK) + header(f"{keys[row]}.{name}", size[blob])
        if offset[blob] - end != len(wanted) or file.read(end, len(wanted)) != wanted:
            message = f"field {name!r}: the tar header before it, or the padding before that, has changed"
            yield Problem(row, name_of(keys, row), message)
        end = offset[blob] + size[blob]
    return end


def _check_trailer(packed: Packed, file: CheckedFile, begin_at: int) -> Iterator[Problem]:
    """Check the index member of one tar, from the end of the last blob on, and the end of the file."""
    last = file.length - len(END) - BLOCK
    start, middle, end = map(int, file.read(last, BLOCK).rstrip(b"\0").split()[1:])
    head = bytes(-begin_at % BLOCK) + header(INDEX_MEMBER, file.length - len(END) - start)
    text = packed.manifest.to_json()
    parts = {
        "header of the index member": (start - len(head), begin_at, head),
        "manifest": (middle, middle, text.ljust(end - middle)),
        "end of the file": (last - (-end % BLOCK), end, bytes(-end % BLOCK) + footer(start, middle, end) + END),
    }
    for what, (wanted, begin, blob) in parts.items():
        if wanted != begin or file.read(begin, len(blob)) != blob:
            yield Problem(DATA_SET, file.path, f"the {what} has changed: plain tar readers may refuse the file")
    yield from check_index_file(file.path, packed.manifest, start, middle)
