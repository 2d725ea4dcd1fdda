"""The table of formats: what the rest of fastdata needs to know about each, as names and strings.

A format's modules, and the libraries they need, are imported when it is used: importing the table costs nothing. A new
format is a reader in `fastdata/formats`, a sink in `converters/writers`, an entry here, and a page of docs
(`docs/formats/adding.md` describes each step).
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastdata.errors import OptionError

__all__ = [
    "DEFAULT_SHARD_SIZE",
    "FORMATS",
    "UNREAD",
    "Format",
    "format_of",
    "is_data_set_file",
    "load",
    "sharded",
    "writable",
    "writable_suffixes",
]

# Bytes. Large enough that opening a shard costs nothing compared with reading it, small enough to copy and to divide
# among workers.
DEFAULT_SHARD_SIZE = 256_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format.

    Attributes:
        name: its name in manifests and in the argument `format`.
        one, several: how messages call one data set of this format, and several.
        one_folder, several_folders: the same for folders, if a single file can be a data set too.
        reader: "module:function" that opens one path, called with it and `ReadOptions`.
        suffixes: the suffixes of its paths, the usual one first.
        magic: (offset, bytes) by which a file is recognized; a negative offset counts from the end of the file.
        marks: patterns of file names; a folder that holds one of these is of this format.
        any_folder: a folder without any format's mark is of this format.
        owned: patterns of file names; a folder that holds only these, an index and a manifest may be overwritten.
        open_many: "module:function" that opens a list of files as one data set, called with it and `ReadOptions`.
        open_whole: the same, leaving out files that are missing or damaged; returns (reader, [(path, reason)]).
        sink: "module:class" that writes it; a leading dot stands for the package of writers, which resolves it. "" if
            the format can only be read.
        sharded: written to a path without a suffix, it becomes a folder of shards.
        has_fields: its records have fields that `image_field` and `label_field` can name.
        scanned: without our index, its length is known only after reading all of it.
    """

    name: str
    one: str
    several: str
    reader: str
    one_folder: str = ""
    several_folders: str = ""
    suffixes: tuple[str, ...] = ()
    magic: tuple[tuple[int, bytes], ...] = ()
    marks: tuple[str, ...] = ()
    any_folder: bool = False
    owned: tuple[str, ...] = ()
    open_many: str = ""
    open_whole: str = ""
    sink: str = ""
    sharded: bool = False
    has_fields: bool = True
    scanned: bool = False

    def called(self, *, folder: bool) -> tuple[str, str]:
        """How messages call one data set, and several."""
        if folder and self.one_folder:
            return self.one_folder, self.several_folders
        return self.one, self.several

    def has_suffix(self, path: str) -> bool:
        """Whether the path has a suffix of this format."""
        return path.rstrip("/").lower().endswith(self.suffixes)

    def is_marked(self, names: Iterable[str]) -> bool:
        """Whether a folder with these file names has this format; hidden files are ignored."""
        shown = [name for name in names if not name.startswith(".")]
        return any(fnmatch.filter(shown, pattern) for pattern in self.marks)


_TABLE = (
    Format(
        name="lmdb",
        one="an LMDB",
        several="LMDBs",
        reader="fastdata.formats.lmdb:open_lmdb",
        suffixes=(".lmdb",),
        magic=((16, b"\xde\xc0\xef\xbe"),),
        marks=("data.mdb",),
        owned=("data.mdb", "lock.mdb"),
        sink=".lmdb:LmdbSink",
    ),
    Format(
        name="hdf5",
        one="an HDF5 file",
        several="HDF5 files",
        reader="fastdata.formats.hdf5:open_hdf5",
        suffixes=(".h5", ".hdf5"),
        magic=((0, b"\x89HDF\r\n\x1a\n"),),
        sink=".hdf5:Hdf5Sink",
    ),
    Format(
        name="tar",
        one="a tar file",
        several="tar files",
        one_folder="a folder of tar shards",
        several_folders="folders of tar shards",
        reader="fastdata.formats.tar:open_tar",
        suffixes=(".tar",),
        magic=((257, b"ustar"), (-1536, b"FDTAREND")),  # the end of a tar of ours, whose head may be lost
        marks=("*.tar",),
        owned=("*.tar",),
        open_many="fastdata.formats.tar:open_tars",
        open_whole="fastdata.formats.tar:open_whole_tars",
        sink=".tar:TarSink",
        sharded=True,
        scanned=True,
    ),
    Format(
        name="folder",
        one="a folder of images",
        several="folders of images",
        reader="fastdata.formats.image_folder:open_folder",
        any_folder=True,
        has_fields=False,
    ),
)
FORMATS = {entry.name: entry for entry in _TABLE}
# Files of other libraries that users may try to open, by suffix; the error says what to do instead.
UNREAD = {
    ".beton": "an FFCV file",
    ".rec": "an MXNet RecordIO file",
    ".tfrecord": "a TFRecord file",
    ".parquet": "a Parquet file",
    ".mds": "a MosaicML Streaming shard",
    ".zip": "a zip archive",
    ".gz": "a compressed file",
    ".tgz": "a compressed tar",
}


def load(name: str, package: str | None = None) -> Any:
    """Import the object that a "module:name" of the table names; a module with a leading dot is in `package`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module, package), attribute)


def writable() -> list[str]:
    """The names of the formats that can be written."""
    return [name for name, entry in FORMATS.items() if entry.sink]


def writable_suffixes() -> list[str]:
    """The suffixes that name a format to write."""
    return [suffix for name in writable() for suffix in FORMATS[name].suffixes]


def sharded() -> list[str]:
    """The names of the formats that can be written as folders of shards."""
    return [name for name, entry in FORMATS.items() if entry.sharded]


def format_of(path: str, chosen: str | None = None) -> str:
    """The name of the format to write at `path`: the chosen one, else by its suffix.

    Raises:
        OptionError: it is unknown, contradicts the suffix, or is neither chosen nor named by a suffix.
    """
    from fastdata.checks import choice  # needs numpy, which the table alone does not

    names = writable()
    if chosen is not None:
        choice("format", chosen, names)
    named = next((name for name in names if FORMATS[name].has_suffix(path)), None)
    if chosen is not None and named is not None and chosen != named:
        raise OptionError(f"{path!r} ends like {named}, but format {chosen!r} was asked for; change one of the two")
    if chosen is not None:
        return chosen
    if named is not None:
        return named
    raise OptionError(
        f"{path!r}: the suffix names no format; use one of {', '.join(writable_suffixes())}, "
        f"or --format {' or '.join(sharded())} for a folder of shards"
    )


def is_data_set_file(name: str) -> bool:
    """Whether a file of this name, in a folder, is part of a data set of some format."""
    return any(fnmatch.fnmatchcase(name, pattern) for entry in FORMATS.values() for pattern in entry.owned)
