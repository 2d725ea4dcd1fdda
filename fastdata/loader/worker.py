"""The loop of a worker process: jobs in, pixels into the shared block, small answers out.

A job is (ticket, generation, place, rows, epoch, indices), all small integers. The answer is (ticket, failures), or
(ticket, failures, samples) for a loader with `collate_fn`. The first eight bytes of the block hold the generation that
is wanted: jobs of an older one (the consumer left its loop) are answered without being done.

A worker ends when it is told to, or when its parent is gone, whatever ended it. torch is not imported here.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import sys
from multiprocessing.connection import Connection, wait
from typing import Any

import cv2
import numpy as np

from fastdata.loader.layout import Layout
from fastdata.loader.recipe import Failure, Maker, Recipe
from fastdata.sharedmem import SharedBlock


def run(connection: Connection, block: SharedBlock, recipe: Recipe, inherited: list[Connection]) -> None:
    """What a worker process is started with. `inherited`: ends of other pipes that a fork copied."""
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    cv2.setNumThreads(0)  # the processes are the parallelism
    gc.freeze()  # a forked child's collector would write to, and so copy, every page of the parent's heap
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        _Worker(connection, block, Maker(recipe)).serve()


class _Worker:
    def __init__(self, connection: Connection, block: SharedBlock, maker: Maker) -> None:
        self._connection, self._block, self._maker = connection, block, maker
        self._layout: Layout | None = None

    def serve(self) -> None:
        parent = multiprocessing.parent_process()
        watched: list[Any] = [self._connection] + ([parent.sentinel] if parent is not None else [])
        while self._connection in wait(watched):
            message = self._connection.recv()
            if message is None:
                return
            name, *arguments = message
            self._connection.send(getattr(self, name)(*arguments))

    def lay_out(self, layout: Layout, size: int) -> None:
        """The block has grown to `size`; samples lie in it like this."""
        self._block.grow(size)
        self._layout = layout

    def probe(self, epoch: int, index: int) -> Layout | Failure:
        """The layout of a sample."""
        samples, failures = self._maker.samples(epoch, np.array([index]))
        return failures[0] if failures else Layout.of(samples[0])

    def fill(
        self, ticket: int, generation: int, place: int, count: int, rows: list[int] | None, epoch: int, indices: bytes
    ) -> tuple[int, list[Failure]]:
        if self._stale(generation):
            return ticket, []
        assert self._layout is not None
        buffer = np.frombuffer(self._block.buffer, np.uint8, count * self._layout.nbytes, place)
        batch = self._layout.batch(buffer, count)
        return ticket, self._maker.fill(
            epoch, np.frombuffer(indices, np.int64), batch, self._layout, rows if rows is not None else range(count)
        )

    def samples(self, ticket: int, generation: int, epoch: int, indices: bytes) -> tuple[int, list[Failure], list[Any]]:
        if self._stale(generation):
            return ticket, [], []
        made, failures = self._maker.samples(epoch, np.frombuffer(indices, np.int64))
        return ticket, failures, made

    def _stale(self, generation: int) -> bool:
        return int.from_bytes(self._block.buffer[:8], "little") != generation
