"""State: the position of an iteration over a stream as plain JSON values, from which a later run resumes.

In: what the order of the samples depends on, and a position in it. Out: a dict; and back, checked. A state of the main
process counts what its rank consumed. A state of a DataLoader's worker counts that worker's part, and only the same
worker of as many can resume from it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fastdata.checks import integer
from fastdata.datasets.epochs import StreamPosition
from fastdata.errors import OptionError
from fastdata.formats.base import Reader
from fastdata.world import World

if TYPE_CHECKING:
    from fastdata.datasets.stream import ImageStream

_VERSION = 1
_COUNTS = ("epoch", "start", "consumed", "worker", "workers")


def fingerprint(reader: Reader) -> str:
    """The data set's fingerprint; a hash of the keys, if fastdata did not write the data."""
    if reader.manifest.fingerprint:
        return reader.manifest.fingerprint
    found = hashlib.sha256()
    for key in reader.keys:
        found.update(key.encode("utf-8", "surrogateescape") + b"\0")
    return found.hexdigest()


def order_of(stream: ImageStream, world: World, fingerprint: str) -> dict[str, Any]:
    """What the order of a stream's samples depends on."""
    return {
        "seed": stream.seed,
        "shuffle": stream.shuffle,
        "buffer_size": stream.buffer_size if stream.shuffle else None,
        "global_batch": stream.batch_size * world.world_size if stream.batch_size else None,
        "world_size": None if stream.batch_size else world.world_size,  # the ranks' parts depend on it
        "drop_last": stream.drop_last,
        "pad": stream.pad,
        "even": stream.even,
        "samples": len(stream.reader),
        "fingerprint": fingerprint,
    }


def as_state(order: dict[str, Any], position: StreamPosition, world: World, *, over: bool) -> dict[str, Any]:
    """The state: the order and a position in it, as plain JSON values."""
    counts = {"start": position.start, "consumed": position.taken}
    if world.workers == 1:  # with one worker or none, its part is everything
        counts = {"start": 0, "consumed": position.start + position.taken}
    worker = {"worker": world.worker, "workers": world.workers}
    return {"version": _VERSION, **order, "epoch": position.epoch, **counts, **worker, "over": over}


def from_state(state: Any, order: dict[str, Any], world: World, most: int) -> StreamPosition:
    """The position in a state.

    Args:
        state: what `as_state` returned.
        order: what the order depends on here; the state's must be the same.
        world: the rank and worker that resume.
        most: how many items an epoch has on a rank.

    Raises:
        OptionError: it is not a state of a stream, or is one of other data, another order or another worker.
    """
    wanted = {"version": _VERSION, **order}
    if not isinstance(state, dict) or not {*wanted, *_COUNTS} <= set(state):
        raise OptionError(f"not a state of fastdata.ImageStream: {state!r:.200}")
    for name, here in wanted.items():
        if state[name] != here:
            raise OptionError(
                f"the state has {name} {state[name]!r}, this stream {here!r}: resume with the same data, the same "
                "arguments that the order depends on, and the same batch_size * world_size"
            )
    epoch, start, consumed, worker, workers = (integer(f"the state's {name}", state[name], 0) for name in _COUNTS)
    if start + consumed > most:
        raise OptionError(f"the state has {start + consumed} items of an epoch behind it; an epoch has {most} here")
    if workers == 1:
        return StreamPosition(epoch, start + consumed)
    if (worker, workers) != (world.worker, world.workers):
        here = f"worker {world.worker} of {world.workers}" if world.workers > 1 else "a process without others"
        raise OptionError(
            f"the state is that of worker {worker} of {workers}, and this is {here}: resume with num_workers={workers}"
        )
    return StreamPosition(epoch, start, consumed)
