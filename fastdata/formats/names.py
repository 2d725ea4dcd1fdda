"""Names of files: as data sets and reports hold them, and as this process has to spell them to open the files.

A data set holds a name as UTF-8, a byte that is none as a lone surrogate. Python decodes names by the locale: where
that is ASCII or Latin-1, the same file has other characters, and a name from a data set cannot be opened. Where the
locale is UTF-8, as nearly everywhere, both are the same string.
"""

from __future__ import annotations

import os
import sys

_UTF8 = sys.getfilesystemencoding().lower() == "utf-8"


def portable(name: str) -> str:
    """What a data set holds of a name or path that the system gave."""
    return name if _UTF8 else os.fsencode(name).decode("utf-8", "surrogateescape")


def local(name: str) -> str:
    """What opens a file whose name or path a data set holds."""
    return name if _UTF8 else os.fsdecode(name.encode("utf-8", "surrogateescape"))
