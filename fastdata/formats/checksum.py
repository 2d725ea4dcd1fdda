"""CRC-32 of what is read, compared with the one that the index holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isal import isal_zlib

from fastdata.errors import FormatError

if TYPE_CHECKING:
    from fastdata.codec.info import Data


crc32 = isal_zlib.crc32
"""The CRC-32 of some bytes, as `zlib.crc32` computes it, in a quarter of the time: 1.0 instead of 4.5 us for 30 kB."""


def engine() -> str:
    """What computes it, with its version: `isal 1.8.0`."""
    from importlib.metadata import version

    return f"isal {version('isal')}"


# Instead of a checksum where none is known, or none is to be compared.
UNCHECKED = -1


def check(data: Data, wanted: int) -> None:
    """Compare the CRC-32 of a field with the one that was written down.

    Raises:
        FormatError: they differ.
    """
    if wanted != UNCHECKED and (found := crc32(data)) != wanted:
        raise FormatError(
            f"the data have changed since they were written (CRC-32 {found:08x}, written as {wanted:08x}): "
            "copy the data set again from a whole one, or convert the data again"
        )
