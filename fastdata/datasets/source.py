"""Source: turn what data sets and loaders accept as data into a reader."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastdata.cache import CachedReader
from fastdata.checks import choice, flag
from fastdata.codec.info import MAX_PIXELS
from fastdata.errors import OptionError
from fastdata.formats.base import Reader, ReadOptions
from fastdata.formats.concat import check_index
from fastdata.formats.detect import open as open_reader
from fastdata.formats.detect import open_whole

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Reader


def open_source(
    source: Source,
    *,
    image_field: str | None = None,
    label_field: str | None = None,
    max_pixels: int | None = None,
    verify: bool = True,
) -> Reader:
    """The reader itself, or the reader of a path. With `verify`, its index is compared with its hash.

    The reader does not check the data, because the caller checks them when it decodes them.

    Raises:
        OptionError: an option cannot be used, or fields are named for a reader, which was opened with its own.
        FormatError: the path is not a data set, or its index has changed since it was written.
    """
    options = _options(image_field, label_field, max_pixels, verify)  # checks them, also for a reader
    if not isinstance(source, Reader):
        reader = open_reader(source, image_field=image_field, label_field=label_field, max_pixels=options.max_pixels)
    else:
        reader = source
        for name, value in (("image_field", image_field), ("label_field", label_field)):
            if value is not None:
                raise OptionError(f"{name}={value!r} comes too late for a reader: give it to fastdata.open(path, ...)")
    if verify:
        check_index(reader)
    return reader


def open_whole_source(
    source: Source, *, image_field: str | None, label_field: str | None, max_pixels: int | None, verify: bool
) -> tuple[Reader, list[tuple[str, str]]]:
    """Like `open_source`, but leave out damaged tars of a path with a warning; also return their (path, reason).

    Raises:
        OptionError: an option cannot be used, or the source is a reader, which has been opened already.
        FormatError: all are damaged.
    """
    if isinstance(source, Reader):
        raise OptionError("skip_shards=True comes too late for a reader: give the path, list or pattern of the shards")
    options = _options(image_field, label_field, max_pixels, verify)
    reader, lost = open_whole(source, dataclasses.replace(options, verify=False))
    if verify:
        check_index(reader)
    if lost:
        named = "; ".join(f"{path}: {reason}" for path, reason in lost[:4]) + ("; ..." if len(lost) > 4 else "")
        warnings.warn(f"{len(lost)} shards are left out, all in skipped_shards: {named}", stacklevel=3)
    return reader, lost


def _options(image_field: str | None, label_field: str | None, max_pixels: int | None, verify: bool) -> ReadOptions:
    return ReadOptions(image_field, label_field, MAX_PIXELS if max_pixels is None else max_pixels, verify)


def in_memory(reader: Reader, cache: str | None, *, verify: bool, progress: bool) -> Reader:
    """The reader, or with `cache="ram"` one that holds its records in memory.

    Raises:
        OptionError: `cache` is neither "ram" nor None.
        CacheError: the records would not fit.
    """
    progress = flag("progress", progress)
    if choice("cache", cache, ("ram", None)) is None:
        return reader
    if isinstance(reader, CachedReader):  # of an ImageDataset with a cache
        return reader
    return CachedReader(reader, verify=verify, progress=progress)


def refuse_unknown(
    owner: str, function: Callable[..., Any], unknown: Mapping[str, Any], known_elsewhere: Mapping[str, str]
) -> None:
    """Refuse unknown arguments, and suggest others.

    Args:
        owner: the class that was called.
        function: the function whose parameters are the known arguments.
        unknown: the unknown arguments.
        known_elsewhere: the argument of a similar class -> what takes its place here.

    Raises:
        TypeError: it names the first one, and what takes its place.
    """
    for name in unknown:
        instead = known_elsewhere.get(name, "")
        if not instead:
            near = difflib.get_close_matches(name, inspect.signature(function).parameters, 1)
            instead = f"did you mean {near[0]!r}?" if near else f"help(fastdata.{owner}) lists all arguments"
        raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}: {instead}")
