"""Refuse remote addresses before anything is looked up or created under such a path."""

from __future__ import annotations

import os
import re

from fastdata.checks import refuse
from fastdata.errors import OptionError

# `s3://b/x.tar`, also as `pathlib` keeps it (`s3:/b/x.tar`); `pipe:cat x.tar`. One letter is a drive of Windows.
_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:/|pipe:)")
_FILE = re.compile(r"file:/")
_JOINED = "::"


def path_of(name: str, value: object) -> str:
    """The text of an argument that names a file or folder.

    Args:
        name: the name of the argument.
        value: the value given.

    Raises:
        OptionError: it is not a path, or one that no file system could have.
    """
    if not isinstance(value, (str, bytes, os.PathLike)):
        refuse(name, "a path", value)
    text = os.fsdecode(value)
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise OptionError(f"{name} {text!r} is not a path: {error.reason}") from error
    if not raw or b"\0" in raw:
        raise OptionError(f"{name} {text!r} is not a path: it {'holds a NUL byte' if raw else 'is empty'}")
    return text


def check_local_target(path: str) -> None:
    """Refuse a remote address as a path to write to: `s3://...` would be a local folder `s3:`.

    Raises:
        OptionError: it is not a path; the message says what to do.
    """
    if not _existing(path) and _FILE.match(path):
        raise OptionError(f"{path!r}: addresses are not written to: give the plain path, {_plain(path)!r}")
    if not _existing(path) and _REMOTE.match(path):
        raise OptionError(f"{path!r}: remote addresses are not written to yet: write to a local path and copy it there")


def check_local(path: str) -> None:
    """Refuse a remote address: `s3://...`, `https://...`, `pipe:...`, `a.tar::b.tar`.

    Such a name is allowed if it exists, as a file or as the folder that the path begins with.

    Args:
        path: the path to read.

    Raises:
        OptionError: it is not a path; the message says what to do.
    """
    existing = _existing(path)
    rest = path[len(existing) :]
    if not existing and _FILE.match(path):
        raise OptionError(f"{path!r}: addresses are not read: give the plain path, {_plain(path)!r}")
    if not existing and _REMOTE.match(path):
        raise OptionError(f"{path!r}: remote addresses are not read yet: copy the data to a local path first")
    if _JOINED in rest:
        raise OptionError(f"{path!r}: names that are joined by {_JOINED!r} are not read: give a list of paths")


def _existing(path: str) -> str:
    """The part of a path that exists, "" if none does."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _plain(path: str) -> str:
    return "/" + path.partition(":")[2].lstrip("/")
