"""The loop of a worker process: jobs in, pixels into the shared block, small answers out.

A part of a job is (name, generation, slot, first, stop, rows, epoch), all small integers; which records are wanted,
where their pictures lie, and in which rows of the batch they belong, stands in the slot itself: no index is needed.
The answer is what went wrong or is to be said, and the samples for a loader with `collate_fn`. The first eight bytes of
the block hold the generation that is wanted: parts of an older one (the consumer left its loop) are answered without
being done.

A worker ends when it is told to, or when its parent is gone, whatever ended it. torch is not imported here.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from fastdata.errors import OptionError, ResourceError, resource_error, resource_words
from fastdata.formats.locations import Locations
from fastdata.loader.layout import Layout
from fastdata.loader.ring import slot_words
from fastdata.loader.sample_log import Failure, Notices
from fastdata.loader.sample_maker import SampleMaker, SampleSpec
from fastdata.sharedmem import SharedBlock


def run(connection: Connection, block: SharedBlock, spec: SampleSpec) -> None:
    """What a worker process does."""
    gc.freeze()  # a forked child's collector would write to, and so copy, every page of the parent's heap
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        _Worker(connection, block, SampleMaker(spec, in_worker=True)).serve()


class _Worker:
    def __init__(self, connection: Connection, block: SharedBlock, maker: SampleMaker) -> None:
        self._connection, self._block, self._maker = connection, block, maker
        self._layout: Layout | None = None
        self._batch_size = 0

    def serve(self) -> None:
        while (message := self._connection.recv()) is not None:
            name, *arguments = message
            answer = getattr(self, name)(*arguments)
            # Plain pickle: multiprocessing's would pass each tensor's memory as a descriptor, and run out of them.
            self._connection.send_bytes(answer if isinstance(answer, bytes) else pickle.dumps(answer))

    def lay_out(self, layout: Layout | None, batch_size: int, size: int) -> str | None:
        """The block has grown to `size`; slots are for `batch_size` samples, which lie in them like this.

        The answer is why that cannot be, where this process may not map so much.
        """
        self._layout, self._batch_size = layout, batch_size
        try:
            self._block.grow(size)
        except ResourceError as error:
            return str(error)
        return None

    def probe(self, epoch: int, *place: int) -> Layout | Failure:
        """The layout of a sample."""
        return self._maker.layout(epoch, np.array([place], np.int64))

    def fill(self, generation: int, slot: int, first: int, stop: int, rows: bool, epoch: int) -> tuple[Notices]:
        if self._stale(generation):
            return (([], []),)
        assert self._layout is not None
        places, where, head = self._words(slot, first, stop, rows)
        buffer = np.frombuffer(self._block.buffer, np.uint8, self._batch_size * self._layout.nbytes, slot + head)
        batch = self._layout.batch(buffer, self._batch_size)
        return (self._maker.fill(epoch, places, batch, self._layout, where),)

    def samples(self, generation: int, slot: int, first: int, stop: int, rows: bool, epoch: int) -> bytes:
        if self._stale(generation):
            return pickle.dumps((([], []), []))
        places, where, _ = self._words(slot, first, stop, rows)
        made, notices = self._maker.samples(epoch, places, where)
        try:
            return pickle.dumps((notices, made), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            kind: type[Exception] | None = resource_error(error)
            words = f"transform returned what cannot be sent to the main process: {error}; return arrays or tensors"
            if kind is not None:  # memory, for what was to be sent
                words = resource_words(error)
            failure = Failure(where[0], int(places[0, 0]), words, "", kind or OptionError)
            return pickle.dumps((([failure], []), [None] * len(places)))

    def _words(self, slot: int, first: int, stop: int, rows: bool) -> tuple[Locations, Sequence[int], int]:
        """The places of the wanted records, their rows (as told, or as they come), and the bytes of all words."""
        words, head = slot_words(self._block, slot, self._batch_size)
        mine = words[first:stop]
        return mine[:, :-1].copy(), mine[:, -1].tolist() if rows else range(first, stop), head

    def _stale(self, generation: int) -> bool:
        return int.from_bytes(self._block.buffer[:8], "little") != generation
