"""Expand globs and brace patterns into paths, in order."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import re

from fastdata.errors import FormatError, raise_resource_error
from fastdata.formats.addresses import check_local

# Ranges in brace patterns, and how many paths they may stand for: all are listed before the first is looked up.
_RANGE, _MOST_PATHS = re.compile(r"\{(-?\d+)\.\.(-?\d+)"), 1 << 20


def paths_of(pattern: str) -> list[str]:
    """The paths that a path or pattern stands for; an existing path is not a pattern.

    Raises:
        FormatError: braces that stand for no paths, or for too many.
        FileNotFoundError: no file matches.
    """
    check_local(pattern)
    if os.path.lexists(pattern):
        return [pattern]
    from braceexpand import UnbalancedBracesError, braceexpand  # type: ignore[attr-defined]

    try:
        count = math.prod(abs(int(last) - int(first)) + 1 for first, last in _RANGE.findall(pattern))
        names = list(braceexpand(pattern)) if count <= _MOST_PATHS else []
    except ValueError as error:  # UnbalancedBracesError is one
        what = "unbalanced braces" if isinstance(error, UnbalancedBracesError) else "braces that are not ranges"
        raise FormatError(f"{pattern!r}: {what} ({error})") from error
    if count > _MOST_PATHS:
        raise FormatError(f"{pattern!r}: its braces stand for {count:,} paths, more than {_MOST_PATHS:,}")
    found: list[str] = []
    for name in names:
        matches = sorted(glob.glob(name)) if glob.has_magic(name) and not os.path.lexists(name) else [name]
        if not matches:
            _refuse_unlisted(name)
            raise FileNotFoundError(f"no file matches {name!r}")
        found += matches
    return found


def _refuse_unlisted(pattern: str) -> None:
    """Raise for a folder that cannot be listed, which `glob` takes for an empty one."""
    folder = os.path.dirname(pattern) or "."
    while glob.has_magic(folder):
        folder = os.path.dirname(folder) or "."
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()
    except OSError as error:
        raise_resource_error(error, folder)
        raise
