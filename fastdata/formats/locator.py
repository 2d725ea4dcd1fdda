"""BlobLocator: look up the locations of images and other fields of many records at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.checksum import UNCHECKED
from fastdata.formats.index import Columns
from fastdata.formats.locations import ABSENT, COLUMNS, NO_FILE, Locations

# More than the size of any file, and still an int64.
_MOST_BYTES = 2**62


class BlobLocator:
    """Locate blobs by the columns of an index.

    Args:
        columns: the index.
        names: the names of the fields, by number.
        images: for each field's number, whether it may hold a record's image.
        lengths: the lengths of the files.
        longest: the largest number of bytes that an image may have.
        checksums: whether the index holds checksums.
    """

    def __init__(
        self,
        columns: Columns,
        names: Sequence[str],
        images: Sequence[bool],
        lengths: Sequence[int],
        longest: int = _MOST_BYTES,
        *,
        checksums: bool = True,
    ) -> None:
        self._columns, self._checksums, self._longest = columns, checksums, min(longest, _MOST_BYTES)
        self._names, self._images = names, images
        self._lengths = np.array([*lengths, 0], np.int64)

    def locations(self, indices: NDArray[np.int64], name: str | None = None) -> Locations:
        """Return a row (record, file, offset, size, crc) for the image of each record, or for the field `name`.

        The file is negative if there is nothing to read: `ABSENT` if the record lacks the field.
        """
        wanted = np.array([*(self._images if name is None else [each == name for each in self._names]), False])
        start, field, count = self._columns["start"], self._columns["field"], len(self._columns["field"])
        locations = np.full((len(indices), COLUMNS), NO_FILE, np.int64)
        locations[:, 0] = indices
        blob, last = (np.asarray(start[indices + step], np.int64) for step in (0, 1))
        rows = np.flatnonzero((blob >= 0) & (blob <= last) & (last <= count))
        locations[rows, 1] = NO_FILE if name is None else ABSENT
        rows = rows[blob[rows] < last[rows]]
        while len(rows):  # the image is one of the first blobs of a record, and a record has few
            found = wanted[
                np.minimum(field[blob[rows]], len(wanted) - 1)
            ]  # the last one: for field numbers that do not exist
            self._put(locations, rows[found], blob[rows[found]], self._longest if name is None else _MOST_BYTES)
            rows = rows[~found]
            blob[rows] += 1
            rows = rows[blob[rows] < last[rows]]
        return locations

    def _put(self, locations: Locations, rows: NDArray[np.int64], blobs: NDArray[np.int64], longest: int) -> None:
        file, offset, size = (np.asarray(self._columns[name][blobs], np.int64) for name in ("file", "offset", "size"))
        known = (file >= 0) & (file < len(self._lengths) - 1)
        room = self._lengths[np.where(known, file, -1)]
        good = known & (offset >= 0) & (size >= 0) & (size <= np.minimum(room, longest)) & (offset <= room - size)
        crc = np.asarray(self._columns["crc"][blobs], np.int64) if self._checksums else np.full_like(file, UNCHECKED)
        locations[rows, 1] = NO_FILE
        locations[rows[good], 1:] = np.stack([file, offset, size, crc], axis=1)[good]
