"""The fork server of our workers: one for all loaders, gone with the last worker that it made.

multiprocessing's own server, which is the program's, ends with the first SIGTERM that a scheduler sends to all
processes; then nobody can tell whether its children live. This one is started while such signals are blocked, and so
are they in what it forks, until a worker ignores them: the program's other children must hear them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, util
from typing import Any

_lock = threading.RLock()
_server: Any = None
_users = 0


@contextmanager
def served() -> Iterator[None]:
    """What this thread starts by forkserver in this block comes from our server, which `use` keeps alive."""
    original, me = forkserver.connect_to_new_process, threading.get_ident()

    def connect(descriptors: Sequence[int]) -> tuple[int, int]:
        if threading.get_ident() != me:
            return original(descriptors)
        return _connected(descriptors)

    forkserver.connect_to_new_process = connect  # type: ignore[assignment]
    try:
        yield
    finally:
        forkserver.connect_to_new_process = original


def _connected(descriptors: Sequence[int]) -> tuple[int, int]:
    global _server
    with _lock:
        if _server is None:
            _server = forkserver.ForkServer()
            # What the program wants to have loaded beforehand; but its main module, which most workers do without.
            wanted = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
            _server._preload_modules = [name for name in wanted if name != "__main__"]
        try:
            _server.ensure_running()
        except ChildProcessError:  # it has died, and the program has waited for any child of its own
            _dropped(_server)
            _server = None
            return _connected(descriptors)
        made: tuple[int, int] = _server.connect_to_new_process(descriptors)
        return made


def use() -> None:
    """A worker has come from the server."""
    global _users
    with _lock:
        _users += 1


def leave() -> None:
    """Such a worker is gone."""
    global _server, _users
    with _lock:
        _users -= 1
        if _users <= 0 and _server is not None:
            server, _server, _users = _server, None, 0
            _end(server)


def _end(server: Any) -> None:
    pid = server._forkserver_pid
    with suppress(ChildProcessError):  # the program has waited for it: its number may be another's by now
        if pid is not None and os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    _dropped(server)


def _dropped(server: Any) -> None:
    """Release what this process holds of a server that is gone, or is another process's."""
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
    address = server._forkserver_address
    if address is not None and not util.is_abstract_socket_namespace(address):
        with suppress(OSError):
            os.unlink(address)


def _forget() -> None:
    """In a fork of the program: the server is its parent's. To hold its pipe would keep it alive."""
    global _lock, _server, _users
    _lock = threading.RLock()
    if _server is not None:
        os.close(_server._forkserver_alive_fd)
    _server, _users = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
