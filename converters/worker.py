"""Worker: one process of a pool. Items flow in, (value, blob, chatter) flow out, in the order in which they came.

It is started fresh with two arguments that matter: the number of a connected socket and the parent's `sys.path`; the
user's main module is never imported. Whatever is written to its stdout and stderr (decoders do) goes to an anonymous
file and comes back with the item that caused it. It ends when the connection does, whatever it is doing then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from fastdata.codec.chatter import anonymous_file, condense
from fastdata.signals import SENT_TO_ALL, pass_by

Function = Callable[[Any], tuple[Any, bytes]]
Answer = tuple[Any, bytes, str]

# A message goes out when it holds this much: few large blobs are never gathered, many small ones share their costs.
_FLUSH_BYTES = 1 << 20
# What is said about one file is looked at up to here.
_MAX_CHATTER = 20_000


@dataclass(frozen=True, slots=True)
class Bug:
    """What a worker sends when its function raised something that it should not have."""

    item: object
    error: str
    trace: str


def run(descriptor: int) -> None:
    """Entry of a process started by `fastdata.converters.pool`, which passes the number of its end of the socket."""
    serve(Connection(descriptor))


def run_spawned(connection: Any) -> None:
    """Entry of a process that multiprocessing started: its stdout and stderr are still the parent's."""
    log = anonymous_file()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    serve(connection)


def serve(connection: Any) -> None:
    """Receive what to call, then lists of items, and answer until None comes or the connection ends."""
    pass_by(SENT_TO_ALL)  # they are the parent's to answer, and it ends its workers
    with contextlib.suppress(ValueError, OSError):
        faulthandler.enable(2)  # a crash leaves its stack in the anonymous file, where the parent finds it
    warnings.simplefilter("always")  # once for each file, not once for each process
    _end_with(connection)
    try:
        target, arguments = connection.recv()
        module, _, name = target.partition(":")
        function: Function = getattr(importlib.import_module(module), name)(*arguments)
        _chatter()  # what imports had to say belongs to no file
        while (items := connection.recv()) is not None:
            if not _answer(connection, function, items):
                return
    except (EOFError, ConnectionError):
        pass  # the parent is gone, or has what it wanted


def _answer(connection: Any, function: Function, items: list[Any]) -> bool:
    """Send the answers to one list of items, in one message or several; False after a bug."""
    answers: list[Answer] = []
    held = 0
    for item in items:
        try:
            value, blob = function(item)
        except Exception as error:
            words = "".join(traceback.format_exception_only(type(error), error)).strip()
            bug = Bug(item, words, traceback.format_exc())
            _send(connection, answers)
            _send(connection, bug)
            return False
        answers.append((value, blob, _chatter()))
        held += len(blob)
        if held >= _FLUSH_BYTES:
            _send(connection, answers)
            answers, held = [], 0
    if answers:
        _send(connection, answers)
    return True


def _send(connection: Any, message: object) -> None:
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def _chatter() -> str:
    """What was written to stderr since the last call, on one line, without what differs from run to run."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        size = os.lseek(2, 0, os.SEEK_END)
        if size == 0:
            return ""
        os.lseek(2, 0, os.SEEK_SET)
        text = os.read(2, _MAX_CHATTER).decode("utf-8", "replace")
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)
        return condense(text)
    return ""


def _end_with(connection: Any) -> None:
    """End this process as soon as the parent's end of the connection is gone, even in the middle of a decode.

    Decoders release the interpreter lock, so a thread that waits for the hang-up gets its turn.
    """
    import select

    if not hasattr(select, "poll"):  # Windows: the end comes with the next read
        return
    poll = select.poll()
    poll.register(connection.fileno(), 0)  # only the hang-up, which is always reported

    def watch() -> None:
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, name="fastdata-parent-watch", daemon=True).start()
