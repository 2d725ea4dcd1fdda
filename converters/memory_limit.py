"""Limit how many large images all workers of a pool hold in memory at once.

A semaphore whose tokens lie in a pipe that the workers inherit: a worker takes one before it decodes a large image and
puts it back afterwards. Most images are small and need none.

A worker holds at most one token, and none while it waits for anything else, so there is no deadlock; a worker that dies
with a token ends the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastdata.sharedmem import free_memory

# Images of at least this size are large: 75 MB of RGB. Those of nearly all cameras are smaller.
_LARGE_PIXELS = 25_000_000
# Peak memory of an image, decoded and encoded: 7 bytes a pixel for most kinds, 16 for a 16-bit PNG with transparency,
# 20 for a JPEG 2000, and 31 for an AVIF with transparency, for which the share below still leaves room.
_BYTES_PER_PIXEL = 16
# The share of the free memory that large images may take; the rest is for the records and other processes.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class LargeImageLimit:
    """A limit that processes share through descriptors, which they inherit under the same numbers.

    Attributes:
        descriptors: the two ends of the pipe: tokens are taken from the first and put back into the second. Empty for
            no limit.
    """

    descriptors: tuple[int, int] | tuple[()] = ()

    @contextmanager
    def hold(self, pixels: int) -> Iterator[None]:
        """Hold a token while an image of this size is in memory."""
        if not self.descriptors or pixels < _LARGE_PIXELS:
            yield
            return
        take, put = self.descriptors
        token = os.read(take, 1)
        try:
            yield
        finally:
            os.write(put, token)

    def close(self) -> None:
        """Close the pipe, in the process that made it."""
        for descriptor in self.descriptors:
            os.close(descriptor)


# The limit of the pool that this process is a worker of.
current = LargeImageLimit()


def limit_for(workers: int, max_pixels: int) -> LargeImageLimit:
    """The limit for this many workers; no limit where descriptors cannot be inherited, or if no image can be large."""
    if os.name == "nt" or max_pixels < _LARGE_PIXELS:
        return LargeImageLimit()
    count = int(free_memory() * _SHARE) // (max_pixels * _BYTES_PER_PIXEL)
    take, put = os.pipe()
    os.write(put, b"." * max(1, min(workers, count)))
    return LargeImageLimit((take, put))
