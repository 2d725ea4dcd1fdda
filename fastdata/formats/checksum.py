"""CRC-32 checksums of what is read, compared with those in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isal import isal_zlib

from fastdata.errors import FormatError

if TYPE_CHECKING:
    from fastdata.codec.info import Data


crc32 = isal_zlib.crc32
"""The CRC-32 of some bytes, as `zlib.crc32` computes it, in a quarter of the time: 1.0 instead of 4.5 us for 30 kB."""


def engine() -> str:
    """The library that computes it, with its version: `isal 1.8.0`."""
    from importlib.metadata import version

    return f"isal {version('isal')}"


# Takes the place of a checksum that is unknown or not to be compared.
UNCHECKED = -1


def check(data: Data, expected: int) -> None:
    """Compare the CRC-32 of a field with the expected one.

    Raises:
        FormatError: they differ.
    """
    if expected != UNCHECKED and (found := crc32(data)) != expected:
        raise FormatError(
            f"the data have changed since they were written (CRC-32 {found:08x}, written as {expected:08x}): "
            "copy the data set again from a whole one, or convert the data again"
        )
