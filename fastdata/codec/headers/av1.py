"""The size in an AV1 stream itself, for which an AVIF decoder allocates memory, whatever the AVIF boxes state.

Names of fields are those of the AV1 specification, section 5.5.
"""

from __future__ import annotations

from fastdata.codec.info import Data

_SEQUENCE_HEADER = 1
# The fields up to the size are at most 32 operating points of about 10 bytes, and some 30 bytes.
_ENOUGH = 512


class _Bits:
    """A reader of single bits; zeros beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "big"), len(data) * 8

    def take(self, count: int) -> int:
        self._left -= count
        return (self._value >> self._left if self._left >= 0 else 0) & ((1 << count) - 1)

    def skip_uvlc(self) -> None:
        zeros = 0
        while zeros < 32 and not self.take(1):
            zeros += 1
        self.take(zeros)


def stated_size(data: Data, start: int, end: int) -> tuple[int, int]:
    """Width and height in the first sequence header of data[start:end].

    (0, 0) if there is none; the stream cannot be decoded then.
    """
    at, end = start, min(end, len(data))
    while at + 2 <= end:
        head = data[at]
        at += 2 if head & 4 else 1  # an extension byte follows where bit 2 is set
        length = end - at
        if head & 2:
            length, at = _leb128(data, at, end)
        if head >> 3 & 15 == _SEQUENCE_HEADER:
            return _size(_Bits(bytes(data[at : min(at + length, end, at + _ENOUGH)])))
        at += length
    return 0, 0


def _leb128(data: Data, at: int, end: int) -> tuple[int, int]:
    value = 0
    for byte in range(8):
        if at >= end:
            break
        value |= (data[at] & 0x7F) << (byte * 7)
        at += 1
        if data[at - 1] < 0x80:
            break
    return value, at


def _size(bits: _Bits) -> tuple[int, int]:
    bits.take(4)  # seq_profile, still_picture
    if bits.take(1):  # reduced_still_picture_header
        bits.take(5)
    else:
        _skip_operating_points(bits)
    wide, high = bits.take(4) + 1, bits.take(4) + 1
    return bits.take(wide) + 1, bits.take(high) + 1


def _skip_operating_points(bits: _Bits) -> None:
    delay = model = 0
    if bits.take(1):  # timing_info_present_flag
        bits.take(64)
        if bits.take(1):
            bits.skip_uvlc()
        model = bits.take(1)
        if model:
            delay = bits.take(5) + 1
            bits.take(42)
    display = bits.take(1)
    for _ in range(bits.take(5) + 1):
        bits.take(12)
        if bits.take(5) > 7:
            bits.take(1)
        if model and bits.take(1):
            bits.take(2 * delay + 1)
        if display and bits.take(1):
            bits.take(4)
