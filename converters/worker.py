"""The loop of a pool's worker process.

In: items. Out: an `Answer` for each, in the same order. What the process writes to stdout and stderr (decoders do) is
returned with the item that caused it. The process ends when the connection does, whatever it is doing then.
"""

from __future__ import annotations

import importlib
import pickle
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fastdata.codec.decoder_log import condense
from fastdata.converters import memory_limit
from fastdata.errors import ResourceError
from fastdata.processes import output

Function = Callable[[Any], tuple[Any, int]]


class Answer(NamedTuple):
    """The result for one item.

    Attributes:
        value: what the pool's function returned.
        nbytes: the size of the value in bytes, by which the pool limits the answers that it holds.
        log: what was written to stdout and stderr meanwhile, on one line.
    """

    value: Any
    nbytes: int
    log: str


# A message is sent when it holds this much: large blobs are not gathered, and small ones share the cost of a message.
_FLUSH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker.

    Attributes:
        target: "module:name" of a callable that makes the function, which is called on every item.
        arguments: the target's arguments.
        limit: how many large images all workers of the pool may hold in memory at once.
    """

    target: str
    arguments: tuple[Any, ...]
    limit: memory_limit.LargeImageLimit


@dataclass(frozen=True, slots=True)
class Bug:
    """A worker's message that its function raised an unexpected exception."""

    item: object
    error: str
    trace: str


@dataclass(frozen=True, slots=True)
class OutOfResources:
    """A worker's message that the machine ran out of a resource while its function ran."""

    reason: str  # names the item


def serve(connection: Connection) -> None:
    """Receive the setup, then lists of items, and answer until None comes or the connection ends."""
    warnings.simplefilter("always")  # once per file, not once per process
    try:
        setup: Setup = connection.recv()
        memory_limit.current = setup.limit
        module, _, name = setup.target.partition(":")
        function: Function = getattr(importlib.import_module(module), name)(*setup.arguments)
        output.taken()  # drops what imports wrote, which belongs to no file
        while (items := connection.recv()) is not None:
            if not _answer(connection, function, items):
                return
    except (EOFError, ConnectionError):
        pass  # the parent has ended, or needs no more answers


def _answer(connection: Connection, function: Function, items: list[Any]) -> bool:
    """Send the answers for one list of items, in one message or several; return False after an error."""
    answers: list[Answer] = []
    held = 0
    for item in items:
        try:
            value, nbytes = function(item)
        except Exception as error:
            _send(connection, answers)
            _send(connection, _failure(item, error))
            return False
        answers.append(Answer(value, nbytes, condense(output.taken())))
        held += nbytes
        if held >= _FLUSH_BYTES:
            _send(connection, answers)
            answers, held = [], 0
    if answers:
        _send(connection, answers)
    return True


def _failure(item: object, error: Exception) -> Bug | OutOfResources:
    if isinstance(error, ResourceError):
        return OutOfResources(str(error))
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return Bug(item, text, "".join(traceback.format_exception(error)))


def _send(connection: Connection, message: object) -> None:
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
