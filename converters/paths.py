"""Paths: source, destination and report of a conversion, checked before the work begins.

In: the arguments. Out: absolute paths on this machine; writing one changes none of the others.
"""

from __future__ import annotations

import os

from fastdata.converters.report import check_report_path
from fastdata.errors import OptionError
from fastdata.formats.addresses import check_local, check_local_target, path_of


def source_of(path: str | os.PathLike[str]) -> str:
    """The folder to read, as an absolute path.

    Raises:
        OptionError: it is not a path on this machine.
    """
    check_local(text := path_of("SRC", path))
    return os.path.abspath(text)


def target_of(name: str, path: str | os.PathLike[str]) -> str:
    """A path to write to, as an absolute one.

    Raises:
        OptionError: it is not a path on this machine.
    """
    check_local_target(text := path_of(name, path))
    return os.path.abspath(text)


def check_apart(src: str, dst: str, report: str | None) -> None:
    """Refuse paths if writing them would change the source, or the data set after it was written.

    Raises:
        OptionError: it names the two paths.
    """
    source, target = os.path.realpath(src), os.path.realpath(dst)
    if source == target:
        raise OptionError(f"SRC and DST are the same path, {src!r}; name another DST")
    if _inside(target, source):
        raise OptionError(f"DST {dst!r} lies inside SRC {src!r}, which is never changed; name a path outside")
    if _inside(source, target):
        raise OptionError(f"SRC {src!r} lies inside DST {dst!r}, which would replace it; name another DST")
    if report is None:
        return
    path = os.path.realpath(report)
    for name, folder in (("SRC", source), ("DST", target)):
        if path == folder or _inside(path, folder):
            raise OptionError(f"report {report!r} lies inside {name}; name a path outside")
    check_report_path(report)


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)
