"""What decoders write to descriptor 2 about the damage in a file, caught and put on one line.

libpng, libtiff and, within OpenCV, libjpeg report damage on descriptor 2 and in no other way. simplejpeg writes nothing
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from fastdata.processes.capture import Capture

T = TypeVar("T")

# The most characters that are kept of the log of one file.
_MOST = 300
_MOST_BYTES = 64 * _MOST
# "[ WARN:0@0.123] global file.cpp:12 function " and "/path/file.py:12: SomeWarning: ": times, threads and source lines
# that differ from run to run.
_NOISE = re.compile(r"^\[ *\w+: *\d+@[\d.]+\] (global \S+:\d+ \S+ )?|^\S+\.py:\d+: (?=\w+Warning: )", re.MULTILINE)
# The beginnings of the lines of libjpeg, libpng and libtiff. libtiff names a function, or the file that it was given.
_DECODERS = re.compile(
    rb"(?:Corrupt JPEG data: |Premature end of JPEG file|Invalid SOS parameters for|Inconsistent progression sequence"
    rb"|Unknown Adobe color transform|Warning: unknown JFIF revision|Application transferred too many scanlines"
    rb"|libpng (?:error|warning): |tempfile\.tif: |_?TIFF\w+: |MissingRequired: TIFF "
    rb"|(?:Fax3|LZW|ZIP|O?JPEG|PackBits|PixarLog|Log\w{1,4}|LZMA|ZSTD|LERC|WebP|Thunder|NeXT|Dump)\w*"
    rb"(?:Decode|Lib|Fixup|Setup|GetField|Seek)\w*: )"
)


def condense(text: str) -> str:
    """Join the distinct lines of a decoder's log into one line, truncated if it is long.

    >>> condense("[ WARN:0@0.12] global a.cpp:3 f bad data\\n[ WARN:0@0.15] global a.cpp:3 f bad data\\n")
    'bad data'
    """
    lines = dict.fromkeys(" ".join(line.split()) for line in _NOISE.sub("", text).splitlines() if line.strip())
    line = "; ".join(lines)
    return line if len(line) <= _MOST else line[: _MOST - 3] + "..."


_capture = Capture(_DECODERS, _MOST_BYTES)


def logged(call: Callable[[], T]) -> tuple[T, str]:
    """Return the result of a call, and what a decoder wrote during it, on one line."""
    result, lines = _capture.during(call)
    return result, condense(lines.decode("utf-8", "replace"))
