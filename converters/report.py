"""ConvertReport: what happened to every file, as a value and as strict JSON.

Promises: every file that is not hidden is counted once (kept, rejected or ignored); the JSON is pure ASCII without lone
surrogates, whatever the names are; the file is written beside its path and renamed, so it is complete or absent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fastdata.errors import OptionError

_SURROGATE = re.compile("[\ud800-\udfff]")
# Colour profiles that are listed by name; cameras write many.
_SHOWN = 5
# Names of descriptors that this process has open. They are written to: to replace them would write elsewhere.
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]+)")


@dataclass(frozen=True, slots=True)
class Note:
    """A path (below the converted folder) and a message about it. `note["path"]` works as in the JSON."""

    path: str
    reason: str

    def __getitem__(self, name: str) -> str:
        if name not in ("path", "reason"):
            raise KeyError(name)
        value: str = getattr(self, name)
        return value


@dataclass(slots=True)
class ConvertReport:
    """What happened to every file; the attributes are the names in the JSON.

    Attributes:
        kept: the number of records written; 0 if nothing was.
        rejected: files whose content or suffix says image, but which could not be used; with the reason.
        ignored: files that are not images; with the reason.
        warnings: notes on files that were kept, on classes, and on the whole conversion (path ".").
        seconds: the time from call to return.
        bytes_in: the size of the files that were kept.
        bytes_out: the size of the data set on disk.
        classes: class names by number.
        format: "lmdb", "hdf5" or "tar".
        engine: the resize engine, with its version; "" if nothing was resized.
        workers: the number of worker processes.
        options: the options that determine the bytes, as in the manifest.
        error: why nothing was written, or why the report file was not; "" if both were.
    """

    kept: int = 0
    rejected: list[Note] = field(default_factory=list)
    ignored: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    classes: list[str] = field(default_factory=list)
    format: str = ""
    engine: str = ""
    workers: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def to_json(self) -> bytes:
        """The report as strict JSON."""
        return strict_json({item.name: getattr(self, item.name) for item in fields(self)})


def strict_json(value: Any) -> bytes:
    r"""A value as JSON that every parser accepts: ASCII, no NaN, no lone surrogates.

    In Python's file names a lone surrogate stands for a byte that is not UTF-8; it becomes a backslash, x and two hex
    digits.

    >>> strict_json("caf\udce9.jpg")
    b'"caf\\\\xe9.jpg"\n'
    """
    return json.dumps(_plain(value), indent=1, allow_nan=False).encode("ascii") + b"\n"


def escaped(char: str) -> str:
    r"""A character as `\n` or `\u202e`; as `\xff` if it stands for a byte of a file name that is not UTF-8."""
    byte = ord(char) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else char.encode("unicode_escape").decode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(lambda match: escaped(match[0]), value)
    if isinstance(value, Note):
        return {"path": _plain(value.path), "reason": _plain(value.reason)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_plain(name): _plain(item) for name, item in value.items()}
    return value


def notes_of_all(became_lossy: Counter[str], profiles: Counter[str]) -> list[Note]:
    """Notes on what happened to many files, one each: most people do not know that they have such files.

    Args:
        became_lossy: how many lossless files of each kind were encoded with loss.
        profiles: how many images were converted to sRGB, by the name of their colour profile.
    """
    notes = []
    if became_lossy:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(became_lossy.items()))
        total = f"{sum(became_lossy.values()):,} lossless files"
        notes.append(Note(".", f"{total} ({kinds}) were encoded with loss; --encode png loses nothing"))
    if profiles:
        names = ", ".join(f"{count:,} {name}" for name, count in profiles.most_common(_SHOWN))
        more = ", ..." if len(profiles) > _SHOWN else ""
        total = f"{sum(profiles.values()):,} images were turned into sRGB"
        notes.append(Note(".", f"{total} by their colour profiles ({names}{more}); --icc keep leaves the numbers"))
    return notes


def check_report_path(path: str) -> None:
    """Refuse, before the work begins, a report that could not be written after it.

    Raises:
        OptionError: it is a folder, or would lie in one that does not exist or cannot be written.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise OptionError(f"report {path!r} is a folder; name a file such as {os.path.join(path, 'report.json')!r}")
    stream = _stream(path)
    if isinstance(stream, int):  # checked now, because later the number may belong to another file of this process
        try:
            os.fstat(stream)
        except OSError as error:
            raise OptionError(f"report {path!r}: the descriptor {stream} is not open; name a file") from error
    if stream is not None:
        return
    if not os.path.isdir(folder):
        raise OptionError(f"report {path!r}: there is no folder {folder!r}; make it first, or choose another path")
    if not os.access(folder, os.W_OK):
        raise OptionError(f"report {path!r}: the folder {folder!r} cannot be written; choose another path")


def write_report(report: ConvertReport, path: str) -> None:
    """Write the report beside its path and rename it, so that it is complete or absent.

    If the path is a link, its file is replaced and the link stays. Descriptors, pipes and devices (`/dev/stdout`, a
    shell's `>(...)`) are written to, never replaced.

    Raises:
        OSError: it could not be written; no part of it stays.
    """
    stream = _stream(path)
    if stream is not None:
        with open(stream, "wb", closefd=isinstance(stream, str)) as out:
            out.write(report.to_json())
        return
    folder, name = os.path.split(os.path.realpath(path))
    handle, beside = tempfile.mkstemp(prefix=".fastdata-report-", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(report.to_json())
            # The permissions that open() gives: with mkstemp's 0600, others could not read it.
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.replace(beside, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _stream(path: str) -> int | str | None:
    """What to write a report to: a descriptor of this process, the path of a pipe or device; None for a file."""
    named = _DESCRIPTOR.fullmatch(path)
    if named is not None:
        return {"stdout": 1, "stderr": 2}.get(named[1]) or int(named[2])
    return path if os.path.exists(path) and not os.path.isfile(path) else None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
