"""The formats, as a table; and `open`, which finds out what a path is.

The table holds names only: a format's modules, and the libraries they need, are imported when it is used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fastdata.codec.info import MAX_PIXELS
from fastdata.errors import FormatError, OptionError, raise_resource_error
from fastdata.formats.base import Reader, ReadOptions
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import INDEX_NAME
from fastdata.formats.opening import any_manifest
from fastdata.formats.patterns import paths_of
from fastdata.manifest import MANIFEST_NAME

__all__ = ["FORMATS", "Format", "Reader", "format_of", "open"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        suffixes: the endings that name it, the usual one first.
        reader: "module:function" that opens a path.
        writer: "module:class" of the sink that writes it; "" for what is only read.
    """

    suffixes: tuple[str, ...]
    reader: str
    writer: str = ""


FORMATS = {
    "lmdb": Format((".lmdb",), "fastdata.formats.lmdb:open_lmdb", "fastdata.converters.writers.lmdb:LmdbSink"),
    "hdf5": Format((".h5", ".hdf5"), "fastdata.formats.hdf5:open_hdf5", "fastdata.converters.writers.hdf5:Hdf5Sink"),
    "tar": Format((".tar",), "fastdata.formats.tar:open_tar", "fastdata.converters.writers.tar:TarSink"),
    "folder": Format((), "fastdata.formats.image_folder:open_folder"),
}
# What a data set is, and several of them are, in words.
_WORDS = {
    "lmdb": ("an LMDB", "LMDB sets"),
    "hdf5": ("an HDF5 file", "HDF5 sets"),
    "shards": ("a folder of tar shards", "folders of shards"),
    "folder": ("a folder of images", "folders of images"),
}
# Files of other loaders that people try; the words say what to do instead.
_OTHERS = {
    ".beton": "an FFCV file",
    ".rec": "an MXNet RecordIO file",
    ".tfrecord": "a TFRecord file",
    ".parquet": "a Parquet file",
    ".mds": "a MosaicML Streaming shard",
    ".zip": "a zip archive",
    ".gz": "a compressed file",
    ".tgz": "a compressed tar",
}


def open(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    image_field: str | None = None,
    label_field: str | None = None,
    max_pixels: int = MAX_PIXELS,
    verify: bool = False,
) -> Reader:
    """Open a data set for reading.

    Args:
        path: a data set that fastdata wrote (LMDB folder, HDF5 file, folder of tar shards, one tar), tars or an LMDB
            that others wrote, or a folder of images; or several tars: a list, a glob (`train/*.tar`) or a brace pattern
            (`train-{000000..000009}.tar`).
        image_field: the field that holds the image (in an LMDB, also a pattern of the keys of images, such as
            "image-%09d"); None takes the only one that is named as images are (`jpg`, `png`, ...).
        label_field: the field that holds the label, an integer in ASCII: "cls", "txt", a value within JSON such as
            "json:annotation.label", or, in an LMDB, a pattern of keys such as "label-%09d". "" says that there are no
            labels. None takes `cls`, and refuses data that others wrote whose labels seem to be elsewhere.
        max_pixels: larger images are refused by whatever decodes them; the data set itself may lower this limit.
        verify: compare checksums (CRC-32) whenever something is read.

    Returns:
        A `Reader`: `len(r)`, `r[i]`, `r.find(key)`, `r.keys`, `r.paths`, `r.labels`, `r.classes`, `r.manifest`.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        FormatError: it is unfinished, cut, changed since it was written, or nothing that can be read.
        OptionError: an option that cannot be used.
        TypeError: `path` is neither a path nor a list of paths.
    """
    options = ReadOptions(image_field, label_field, max_pixels, verify)
    items = _listed(path)
    try:
        return _opened(items, options)
    except PermissionError as error:
        raise FormatError(
            f"{error.filename}: cannot be read: {error.strerror}; make it readable for this user"
        ) from error
    except Exception as error:
        raise_resource_error(error, os.fspath(items[0]) if items else "no data set")
        raise


def _listed(path: Any) -> list[str | os.PathLike[str]]:
    items = [path] if isinstance(path, (str, os.PathLike)) or not isinstance(path, Iterable) else list(path)
    for item in items:
        if not isinstance(item, (str, os.PathLike)):
            given = type(item).__name__ if len(items) == 1 else f"{type(path).__name__} of {type(item).__name__}"
            raise TypeError(f"a data set is given by its path, or by a list of the paths of tars, not by {given}")
    return items


def _opened(items: Sequence[str | os.PathLike[str]], options: ReadOptions) -> Reader:
    names = [name for item in items for name in _expanded(os.fspath(item))]
    kinds = [_what_folder(name) if os.path.isdir(name) else _what_file(name) for name in names]
    if len(names) == 1:
        if kinds[0] == "folder":
            _refuse_fields(names[0], options)
        return cast("Callable[[str, ReadOptions], Reader]", load(FORMATS[kinds[0]].reader))(names[0], options)
    from fastdata.formats.tar import open_tars

    _refuse_joined(names, kinds)
    return open_tars(names, options)


def open_whole(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], options: ReadOptions
) -> tuple[Reader, list[tuple[str, str]]]:
    """As `open`, of tars, without those that are missing or damaged: these are named, (path, reason).

    Raises:
        FileNotFoundError: a pattern that no file matches.
        FormatError: none of them is whole, or a folder is no folder of shards.
    """
    from fastdata.formats.tar import open_whole_tars

    items = _listed(path)
    names = [os.path.abspath(name) for item in items for name in paths_of(os.fspath(item))]
    return open_whole_tars([shard for name in names for shard in _shards_of(name)], options)


def _shards_of(path: str) -> list[str]:
    """The tars of a folder, of ours as its manifest lists them, there or not; what is no folder is one itself."""
    if not os.path.isdir(path):
        return [path]
    if (kind := _what_folder(path)) != "tar":
        raise FormatError(f"{path}: skip_shards is for tar files and folders of these, and this is {_WORDS[kind][0]}")
    manifest = any_manifest(path)
    names = sorted(os.listdir(path)) if manifest is None else [file.name for file in manifest.files]
    return [os.path.join(path, name) for name in names if name.endswith(".tar") and not name.startswith(".")]


def load(place: str) -> object:
    """What a "module:name" of the table stands for."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def format_of(path: str, chosen: str | None = None) -> str:
    """The format to write at `path`: the chosen one, else by its ending.

    Raises:
        OptionError: unknown, contradictory, or not to be told from the ending.
    """
    writable = {name: entry for name, entry in FORMATS.items() if entry.writer}
    if chosen is not None and chosen not in list(writable):  # a list, since callers may be untyped
        raise OptionError(f"format {chosen!r}: use one of {', '.join(writable)}")
    suffix = os.path.splitext(path.rstrip("/"))[1].lower()
    named = next((name for name, entry in writable.items() if suffix in entry.suffixes), None)
    if chosen is not None and named is not None and chosen != named:
        raise OptionError(f"{path!r} ends like {named}, but format {chosen!r} was asked for; change one of the two")
    if chosen is not None or named is not None:
        return chosen or cast("str", named)
    endings = ", ".join(ending for entry in writable.values() for ending in entry.suffixes)
    raise OptionError(
        f"{path!r}: the ending names no format; use one of {endings}, or --format tar for a folder of shards"
    )


def _refuse_joined(names: list[str], kinds: list[str]) -> None:
    """Several data sets are read as one only where all are tar files."""
    kinds = [
        "shards" if kind == "tar" and os.path.isdir(name) else kind for name, kind in zip(names, kinds, strict=True)
    ]
    others = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind != "tar"]
    if others:
        several = " and ".join(dict.fromkeys(_WORDS[kind][1] for _, kind in others))
        raise FormatError(
            f"{others[0][0]}: not a tar file but {_WORDS[others[0][1]][0]}; several {several} cannot be joined: a "
            "list, glob or brace pattern may name tar files only; convert the images of all into one data set, or join "
            "ImageDatasets with torch.utils.data.ConcatDataset"
        )


def _refuse_fields(path: str, options: ReadOptions) -> None:
    for name, value, usual in (("image_field", options.image_field, ""), ("label_field", options.label_field, "cls")):
        if value is not None and value != usual:
            raise OptionError(f"{name}={value!r}: {path} is a folder of images, whose records have no such fields")


def _expanded(pattern: str) -> list[str]:
    """The absolute paths that a path or pattern stands for, which are there."""
    return [_existing(name) for name in paths_of(pattern)]


def _existing(path: str) -> str:
    if not os.path.exists(path):
        parent, name = os.path.split(os.path.abspath(path))
        old = os.path.join(parent, f".{name}.fastdata", "old")
        hint = (
            f"; a replacement was interrupted, the old data set is {old}: convert again, or move it back"
            if os.path.exists(old)
            else ""
        )
        raise FileNotFoundError(f"there is no data set at {path!r}{hint}")
    return os.path.abspath(path)


def _what_folder(path: str) -> str:
    manifest = any_manifest(path)
    if manifest is not None:
        where, name = os.path.join(path, MANIFEST_NAME), manifest.format
        if name not in FORMATS:
            raise FormatError(f"{where}: unknown format {name!r}; this fastdata reads {', '.join(FORMATS)}")
        return name
    name = os.path.basename(path)
    if name.startswith(".") and name.endswith(".fastdata"):
        raise FormatError(
            f"{path}: left over from a conversion that did not finish; the next conversion to its place removes it"
        )
    names = os.listdir(path)
    if "data.mdb" in names:
        return "lmdb"
    if any(name.endswith(".tar") and not name.startswith(".") for name in names):
        return "tar"
    if INDEX_NAME in names:
        raise FormatError(
            f"{path}: {INDEX_NAME} without {MANIFEST_NAME}: unfinished or copied in part; convert or copy it again"
        )
    return "folder"


def _what_file(path: str) -> str:
    with CheckedFile(path) as file:
        head, tail = file.read(0, 512), file.read(max(0, file.length - 1536), 512)
    suffix = os.path.splitext(path)[1].lower()
    if head.startswith(b"\x89HDF\r\n\x1a\n") or suffix in FORMATS["hdf5"].suffixes:
        return "hdf5"
    if head[257:262] == b"ustar" or suffix == ".tar" or tail.startswith(b"FDTAREND"):  # of ours, maybe without its head
        return "tar"
    if head[16:20] == b"\xde\xc0\xef\xbe":
        return "lmdb"
    what = _OTHERS.get(suffix, "not a data set")
    raise FormatError(
        f"{path}: {what}; fastdata reads LMDB folders, its own HDF5 files, tar files and folders of images: "
        "convert the images with `fastdata convert`"
    )
