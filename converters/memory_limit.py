"""How many large images all workers of a pool may have in memory at once.

A semaphore whose tokens lie in a pipe that the workers inherit: whoever wants to decode a large image takes one and
puts it back. Most images are small and never come here.

A worker holds at most one token, and none while it waits for anything else, so nobody waits for ever; one that dies
with a token ends the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastdata.sharedmem import free_memory

# Images from here on are large: 75 MB of RGB. Nearly all cameras stay below it.
_LARGE_PIXELS = 25_000_000
# What an image takes at its peak, decoded and encoded: 7 in most kinds, 16 as a 16-bit PNG with transparency, 20 as a
# JPEG 2000, and 31 as an AVIF with transparency, which the share below still has room for.
_BYTES_PER_PIXEL = 16
# The share of the free memory that large images may take; the rest is for the records and everybody else.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class LargeImageLimit:
    """A limit that processes share by the numbers of its descriptors, which they inherit.

    Attributes:
        descriptors: the two ends of the pipe, to take tokens from and to put them back; none for no limit.
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
    """The limit for so many workers; none where descriptors cannot be inherited, and where no image is large."""
    if os.name == "nt" or max_pixels < _LARGE_PIXELS:
        return LargeImageLimit()
    count = int(free_memory() * _SHARE) // (max_pixels * _BYTES_PER_PIXEL)
    take, put = os.pipe()
    os.write(put, b"." * max(1, min(workers, count)))
    return LargeImageLimit((take, put))
