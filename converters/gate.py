"""Gate: how many large pictures all workers together may have in memory at once.

Tokens lie in a pipe that the workers inherit: whoever wants to decode a large picture takes one and puts it back. Free
memory flows in (once, at the start), a number of tokens flows out. Most pictures are small and never come here.

A worker holds at most one token, and none while it waits for anything else, so nobody waits for ever; one that dies
with a token ends the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fastdata.sharedmem import free_memory

# Pictures from here on are large: 75 MB of RGB. Nearly all cameras stay below it.
_LARGE_PIXELS = 25_000_000
# What a picture takes at its peak, decoded and encoded: 7 in most kinds, 16 as a 16-bit PNG with transparency, 20 as a
# JPEG 2000, and 31 as an AVIF with transparency, which the share below still has room for.
_BYTES_PER_PIXEL = 16
# The share of the free memory that large pictures may take; the rest is for the records and everybody else.
_SHARE = 0.5

Tokens = tuple[int, int]
"""The two ends of the pipe: take from the first, put back to the second."""


@contextmanager
def open_gate(workers: int, max_pixels: int) -> Iterator[Tokens | None]:
    """Tokens for so many workers; None where descriptors cannot be inherited, and where nothing is large."""
    if os.name == "nt" or max_pixels < _LARGE_PIXELS:
        yield None
        return
    count = int(free_memory() * _SHARE) // (max_pixels * _BYTES_PER_PIXEL)
    take, put = os.pipe()
    try:
        os.write(put, b"." * max(1, min(workers, count)))
        yield take, put
    finally:
        os.close(take)
        os.close(put)


@contextmanager
def passing(tokens: Tokens | None, pixels: int) -> Iterator[None]:
    """Hold a token while a picture of this size is in memory."""
    if tokens is None or pixels < _LARGE_PIXELS:
        yield
        return
    take, put = tokens
    token = os.read(take, 1)
    try:
        yield
    finally:
        os.write(put, token)
