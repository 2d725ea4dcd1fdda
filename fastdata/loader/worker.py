"""What a worker process does: messages in, pixels into the shared block, small answers out.

A message says which slot of the block holds a request; which records are wanted, where their images and fields lie, and
in which rows of the batch they belong, stands in the slot itself: no index is needed. The first eight bytes of the
block hold the generation that is wanted: requests of another one (the consumer left its loop) are answered without
being done.

A worker ends when it is asked to, or when its parent is gone, whatever ended it. torch is not imported here.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
from multiprocessing.connection import Connection
from typing import NamedTuple

from fastdata.errors import OptionError, ResourceError, resource_error, resource_words
from fastdata.loader.buffers import buffer_at
from fastdata.loader.executor import BatchRequest, Wants, make_batch
from fastdata.loader.layout import Layout
from fastdata.loader.sample_log import Failure, Made
from fastdata.loader.sample_maker import SampleMaker
from fastdata.loader.sample_spec import SampleSpec
from fastdata.sharedmem import SharedBlock

# What a worker answers; None for a request that is not wanted any more; the reason where it may not map so much memory.
Answer = Made | str | None


class PartMessage(NamedTuple):
    """A part of a request, as it is sent to a worker.

    Attributes:
        generation: that of the request.
        epoch: for the random numbers.
        block_bytes: how long the shared block is now.
        offset: where the request's slot begins in it.
        samples: for how many samples the slot is.
        first: the first row of the slot's table that this worker is to make.
        stop: the row behind the last one.
        layout: that of the request.
        wants: that of the request.
    """

    generation: int
    epoch: int
    block_bytes: int
    offset: int
    samples: int
    first: int
    stop: int
    layout: Layout | None
    wants: Wants


def run(connection: Connection, block: SharedBlock, spec: SampleSpec) -> None:
    """Answer messages until there are no more."""
    gc.freeze()  # a forked child's collector would write to, and so copy, every page of the parent's heap
    maker = SampleMaker(spec, in_worker=True)
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        while (message := pickle.loads(connection.recv_bytes())) is not None:
            connection.send_bytes(_answer(block, spec.columns, maker, message))


def wanted_generation(block: SharedBlock) -> int:
    """The generation whose requests are done."""
    return int.from_bytes(block.buffer[:8], "little")


def want_generation(block: SharedBlock, generation: int) -> None:
    """Let workers do the requests of this generation only."""
    block.buffer[:8] = generation.to_bytes(8, "little")


def _answer(block: SharedBlock, columns: int, maker: SampleMaker, message: PartMessage) -> bytes:
    """The pickled `Answer`."""
    if wanted_generation(block) != message.generation:
        return pickle.dumps(None)
    try:
        request = _request(block, columns, message)
    except ResourceError as error:
        return pickle.dumps(str(error))
    made = make_batch(maker, request)
    try:
        # Plain pickle: multiprocessing's would pass each tensor's memory as a descriptor, and run out of them.
        return pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps(_not_sent(request, error))


def _request(block: SharedBlock, columns: int, message: PartMessage) -> BatchRequest:
    """The part of a request that a message stands for; a row of it has so many columns."""
    if block.size < message.block_bytes:
        block.grow(message.block_bytes)
    layout = message.layout
    buffer = buffer_at(block, message.offset, message.samples, 0 if layout is None else layout.nbytes, columns)
    part = buffer.table[message.first : message.stop].copy()
    return BatchRequest(
        generation=message.generation,
        batch_index=0,  # the parent knows it
        epoch=message.epoch,
        locations=part[:, :-1],
        rows=part[:, -1],
        buffer=buffer,
        layout=layout,
        wants=message.wants,
    )


def _not_sent(request: BatchRequest, error: Exception) -> Answer:
    """The answer where samples cannot be pickled."""
    kind: type[Exception] | None = resource_error(error)
    if kind is None:
        function = "target_transform" if request.wants in ("pixels", "values") else "transform"
        words = f"{function} returned what cannot be sent to the main process: {error}; return arrays or tensors"
    else:  # memory, for what was to be sent
        words = resource_words(error)
    failure = Failure(int(request.rows[0]), int(request.locations[0, 0]), words, "", kind or OptionError)
    return Made([failure], [], None, None, {})
