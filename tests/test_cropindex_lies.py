"""A crop index that lies, by accident or on purpose, is harmless: it is found out, and nothing ever crashes."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastdata.codec import cropindex
from fastdata.codec.cropindex import embed, load
from tests.test_cropindex import made, without_index


def lied(data: bytes, lengths: NDArray[Any], scan: int | None = None) -> bytes:
    """A JPEG whose index says something else, with the right checksum."""
    head = 6 + cropindex._HEAD.size
    true = cropindex._HEAD.unpack_from(data, 6)[2]
    blob = lengths.astype("<u2").tobytes()
    body = struct.pack("<I", true if scan is None else scan) + blob
    segment = cropindex.IDENTIFIER + bytes([cropindex.VERSION]) + body[:4]
    segment += struct.pack("<I", zlib.crc32(body)) + blob
    end = 4 + int.from_bytes(data[4:6], "big")
    assert head < end
    return data[:4] + (len(segment) + 2).to_bytes(2, "big") + segment + data[end:]


def lengths_of(data: bytes) -> NDArray[np.int64]:
    end = 4 + int.from_bytes(data[4:6], "big")
    return np.frombuffer(data[6 + cropindex._HEAD.size : end], "<u2").astype(np.int64)


@pytest.mark.parametrize("width", [60, 160])
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_a_lying_index_is_harmless(width: int, seed: int) -> None:
    data = made(width, 130)
    true = lengths_of(data)
    rng = random.Random(seed)
    lengths, scan = true.copy(), None
    how = rng.randrange(7)
    first, second = rng.randrange(len(true)), rng.randrange(len(true))
    if how == 0:
        lengths[[first, second]] = lengths[[second, first]]
    elif how == 1:
        lengths = np.roll(lengths, rng.randrange(1, len(true)))
    elif how == 2:  # compensated
        by = rng.randrange(-3, 4)
        lengths[first] += by
        lengths[second] -= by
    elif how == 3:
        lengths = np.array([rng.randrange(0, 65536) for _ in lengths])
    elif how == 4:  # one interval swallows eight others, so that its marker's number is right
        at = rng.randrange(0, max(1, len(true) - 9))
        lengths = np.concatenate([lengths[:at], [lengths[at : at + 9].sum()], lengths[at + 9 :], lengths[:8]])
    elif how == 5:
        lengths = lengths[: rng.randrange(0, len(true))]
    else:
        scan = rng.randrange(0, len(data))
    assume(lengths.size and (lengths >= 0).all() and lengths.max() < 65536)
    liar, plain = load(lied(data, lengths, scan)), load(without_index(data))
    assert liar is not None  # by its markers, if not by its index
    assert plain is not None
    np.testing.assert_array_equal(np.diff(liar.bounds), np.diff(plain.bounds))


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_damaged_bytes_never_crash(seed: int) -> None:
    data = bytearray(made(120, 90))
    rng = random.Random(seed)
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(2, rng.choice([120, len(data)]))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    found = load(data)
    if found is None:
        return
    height, width = found.header.size
    x, y = rng.randrange(width), rng.randrange(height)
    box = (x, y, rng.randrange(x, width) + 1, rng.randrange(y, height) + 1)
    small, corner, size = cropindex.cut_loaded(found, box, rng.choice([1, 2, 4, 8]))
    assert len(small) <= len(data)
    assert corner[0] <= box[0]
    assert corner[1] <= box[1]
    assert corner[0] + size[1] >= box[2]
    assert corner[1] + size[0] >= box[3]


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe9", b"\xff\xd8\xff\xe9\x00\x02", b"no jpeg at all"]
)
def test_scraps_cannot_be_cut(data: bytes) -> None:
    assert load(data) is None
    assert embed(data) == data
