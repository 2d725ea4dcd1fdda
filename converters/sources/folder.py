"""A folder of photos as a source: the walk that the reader shares, and the order in which records are written.

In: a folder and options. Out: `ImageRef`s, and the files that are rejected or ignored. Only the first bytes of files
are read, and only if the suffix does not say image.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from fastdata.errors import ConvertError
from fastdata.formats.folder import FolderScan, ImageRef, scan
from fastdata.seeding import keys

# The random stream of the order of writing, unrelated to that of the order of reading ("SHUF" in ASCII).
_STREAM = 0x53485546


def find_images(src: str, *, natural: bool = False) -> FolderScan:
    """Walk `src`.

    Raises:
        ConvertError: it is not a folder, or cannot be listed.
    """
    check_folder(src)
    try:
        return scan(src, natural=natural)
    except OSError as error:
        raise ConvertError(f"{src}: cannot be listed ({error.strerror or error})") from error


def check_folder(src: str) -> None:
    """Refuse a source that is not a folder.

    Raises:
        ConvertError: it is missing or a file.
    """
    if not os.path.exists(src):
        raise ConvertError(f"{src}: there is no such folder; SRC must be a folder of images or of class folders")
    if not os.path.isdir(src):
        raise ConvertError(f"{src}: this is a file; SRC must be a folder of images or of class folders")


def shuffled(entries: Sequence[ImageRef], seed: int) -> list[ImageRef]:
    """The entries in a random order that depends only on the seed and on their number."""
    order = np.argsort(keys(seed, 0, np.arange(len(entries)), stream=_STREAM), kind="stable")
    return [entries[row] for row in order.tolist()]
