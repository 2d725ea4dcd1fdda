"""File names: as data sets and reports store them, and as this process must spell them to open the files.

A data set stores a name as UTF-8, with a lone surrogate for a byte that is not UTF-8. Python decodes names by the
locale: under ASCII or Latin-1 the same file has other characters, and a name from a data set cannot be opened. Under
UTF-8, as nearly everywhere, both are the same string.
"""

from __future__ import annotations

import os
import sys

_UTF8 = sys.getfilesystemencoding().lower() == "utf-8"


def portable(name: str) -> str:
    """Convert a name or path from the system to the form that data sets store."""
    return name if _UTF8 else os.fsencode(name).decode("utf-8", "surrogateescape")


def local(name: str) -> str:
    """Convert a name or path from a data set to the form that opens the file."""
    return name if _UTF8 else os.fsdecode(name.encode("utf-8", "surrogateescape"))
