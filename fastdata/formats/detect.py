"""`open`: detect the format of a path by its manifest, its content or its suffix, and open it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from fastdata.codec.info import MAX_PIXELS
from fastdata.errors import FormatError, OptionError, raise_resource_error
from fastdata.formats import FORMATS, UNREAD, Format, load
from fastdata.formats.base import Reader, ReadOptions
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import INDEX_NAME
from fastdata.formats.opening import any_manifest
from fastdata.formats.patterns import paths_of
from fastdata.manifest import MANIFEST_NAME

__all__ = ["open", "open_whole"]

Openable = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def open(
    path: Openable,
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
            "json:annotation.label", or, in an LMDB, a pattern of keys such as "label-%09d". "" means no labels. None
            takes `cls`, and refuses foreign data whose labels seem to be elsewhere.
        max_pixels: larger images are refused when they are decoded; the data set itself may lower this limit.
        verify: compare checksums (CRC-32) on every read.

    Returns:
        A `Reader`: `len(r)`, `r[i]`, `r.find(key)`, `r.keys`, `r.paths`, `r.labels`, `r.classes`, `r.manifest`.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        FormatError: it is unfinished, cut, changed since it was written, or not a data set.
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
            raise TypeError(f"a data set is given by its path, or by a list of paths, not by {given}")
    return items


def _opened(items: Sequence[str | os.PathLike[str]], options: ReadOptions) -> Reader:
    paths = [path for item in items for path in _expanded(os.fspath(item))]
    formats = [format_at(path) for path in paths]
    if len(paths) != 1:
        many = cast("Callable[[Sequence[str], ReadOptions], Reader]", load(_joining(paths, formats).open_many))
        return many(paths, options)
    if not formats[0].has_fields:
        _refuse_fields(paths[0], formats[0], options)
    return cast("Callable[[str, ReadOptions], Reader]", load(formats[0].reader))(paths[0], options)


def open_whole(path: Openable, options: ReadOptions) -> tuple[Reader, list[tuple[str, str]]]:
    """Open several files as `open` does, without those that are missing or damaged; list these as (path, reason).

    Raises:
        FileNotFoundError: a pattern that no file matches.
        FormatError: none of them is intact, or a folder does not consist of shards.
    """
    paths = [os.path.abspath(path) for item in _listed(path) for path in paths_of(os.fspath(item))]
    able = [entry for entry in FORMATS.values() if entry.open_whole]
    for folder in filter(os.path.isdir, paths):
        if (entry := format_at(folder)) not in able:
            several = " or ".join(each.several for each in able)
            one = entry.called(folder=True)[0]
            raise FormatError(f"{folder}: skip_shards is for {several} and folders of these, and this is {one}")
    entry = next((found for found in map(_guessed, paths) if found in able), None) or able[0]
    whole = cast("Callable[[Sequence[str], ReadOptions], tuple[Reader, list[tuple[str, str]]]]", load(entry.open_whole))
    return whole([shard for path in paths for shard in _shards_of(path, entry)], options)


def _shards_of(path: str, entry: Format) -> list[str]:
    """The shards of a folder, all that its manifest lists if it is ours; any other path is a shard itself."""
    if not os.path.isdir(path):
        return [path]
    manifest = any_manifest(path)
    names = sorted(os.listdir(path)) if manifest is None else [file.name for file in manifest.files]
    return [os.path.join(path, name) for name in names if entry.is_marked([name])]


def _joining(paths: Sequence[str], formats: Sequence[Format]) -> Format:
    """The common format of several paths, which can read several files as one data set.

    Raises:
        FormatError: it names the first path that is not of this format, or is a folder.
    """
    able = [entry for entry in FORMATS.values() if entry.open_many]
    if not paths:
        raise FormatError(f"no {' or '.join(entry.several for entry in able)} to read: the list of paths is empty")
    wanted = next((entry for entry in formats if entry in able), able[0])
    for path, entry in zip(paths, formats, strict=True):
        folder = os.path.isdir(path)
        if entry is not wanted or folder:
            one, several = entry.called(folder=folder)
            raise FormatError(
                f"{path}: not {wanted.one} but {one}; {several} cannot be read as one data set: a list, glob or brace "
                f"pattern may name {wanted.several} only; convert the images of all into one data set, or join "
                "ImageDatasets with torch.utils.data.ConcatDataset"
            )
    return wanted


def _refuse_fields(path: str, entry: Format, options: ReadOptions) -> None:
    for name, value, usual in (("image_field", options.image_field, ""), ("label_field", options.label_field, "cls")):
        if value is not None and value != usual:
            raise OptionError(f"{name}={value!r}: {path} is {entry.one}, whose records have no such fields")


def _expanded(pattern: str) -> list[str]:
    """The absolute paths that a path or pattern stands for; all of them exist."""
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


def format_at(path: str) -> Format:
    """The format of an existing path.

    Raises:
        FormatError: it has no known format, or is unfinished.
        OSError: it cannot be read.
    """
    return _format_of_folder(path) if os.path.isdir(path) else _format_of_file(path)


def _guessed(path: str) -> Format | None:
    """The format of a path that may be missing or damaged; None if unknown."""
    try:
        return format_at(path)
    except (FormatError, FileNotFoundError):
        return _by_suffix(path)


def _by_suffix(path: str) -> Format | None:
    return next((entry for entry in FORMATS.values() if entry.has_suffix(path)), None)


def _format_of_folder(path: str) -> Format:
    manifest = any_manifest(path)
    if manifest is not None:
        if manifest.format not in FORMATS:
            raise FormatError(
                f"{os.path.join(path, MANIFEST_NAME)}: unknown format {manifest.format!r}; this fastdata reads "
                f"{', '.join(FORMATS)}"
            )
        return FORMATS[manifest.format]
    name = os.path.basename(path)
    if name.startswith(".") and name.endswith(".fastdata"):
        raise FormatError(
            f"{path}: left over from a conversion that did not finish; the next conversion to the same path removes it"
        )
    names = os.listdir(path)
    marked = next((entry for entry in FORMATS.values() if entry.is_marked(names)), None)
    if marked is not None:
        return marked
    if INDEX_NAME in names:
        raise FormatError(
            f"{path}: {INDEX_NAME} without {MANIFEST_NAME}: unfinished, or an incomplete copy; convert or copy it again"
        )
    return next(entry for entry in FORMATS.values() if entry.any_folder)


def _format_of_file(path: str) -> Format:
    with CheckedFile(path) as file:
        entry = next((entry for entry in FORMATS.values() if _has_magic(file, entry)), None) or _by_suffix(path)
    if entry is not None:
        return entry
    *some, last = (entry.called(folder=entry.any_folder)[1] for entry in FORMATS.values())
    what = UNREAD.get(os.path.splitext(path)[1].lower(), "not a data set")
    raise FormatError(
        f"{path}: {what}; fastdata reads {', '.join(some)} and {last}: convert the images with `fastdata convert`"
    )


def _has_magic(file: CheckedFile, entry: Format) -> bool:
    for offset, magic in entry.magic:
        begin = offset if offset >= 0 else file.length + offset
        if begin >= 0 and file.read(begin, len(magic)) == magic:
            return True
    return False
