"""The loop of a pool's worker process. Items flow in, `Answer`s flow out, in the order in which they came.

What is written to its stdout and stderr (decoders do) comes back with the item that caused it. It ends when the
connection does, whatever it is doing then.
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
    """What came of one item.

    Attributes:
        value: what the pool's function made of it.
        nbytes: how many bytes that has: few large answers are held at a time.
        log: what was written to stdout and stderr meanwhile, on one line.
    """

    value: Any
    nbytes: int
    log: str


# A message goes out when it holds this much: few large blobs are never gathered, many small ones share their costs.
_FLUSH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is sent first.

    Attributes:
        target: "module:name" of what makes the function that is called on every item.
        arguments: for it.
        limit: how many large images all workers of the pool may have in memory at once.
    """

    target: str
    arguments: tuple[Any, ...]
    limit: memory_limit.LargeImageLimit


@dataclass(frozen=True, slots=True)
class Bug:
    """What a worker sends when its function raised something that it should not have."""

    item: object
    error: str
    trace: str


@dataclass(frozen=True, slots=True)
class OutOfResources:
    """What a worker sends when the machine ran out of something while its function was at work."""

    reason: str  # names the item


def serve(connection: Connection) -> None:
    """Receive the setup, then lists of items, and answer until None comes or the connection ends."""
    warnings.simplefilter("always")  # once for each file, not once for each process
    try:
        setup: Setup = connection.recv()
        memory_limit.current = setup.limit
        module, _, name = setup.target.partition(":")
        function: Function = getattr(importlib.import_module(module), name)(*setup.arguments)
        output.taken()  # what imports wrote belongs to no file
        while (items := connection.recv()) is not None:
            if not _answer(connection, function, items):
                return
    except (EOFError, ConnectionError):
        pass  # the parent is gone, or has what it wanted


def _answer(connection: Connection, function: Function, items: list[Any]) -> bool:
    """Send the answers to one list of items, in one message or several; False after an error."""
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
