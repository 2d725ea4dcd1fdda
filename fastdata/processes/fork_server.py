"""The fork server of the workers: one for all loaders, which ends with the last worker that it forked.

multiprocessing's own server, which belongs to the program, ends with the first SIGTERM that a scheduler sends to all
processes; then it is unknown whether its children live. This server is started while such signals are blocked, so its
forks begin with them blocked, until a worker ignores them. The program's other children must receive them.
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
    """Let this thread start processes from this server in the block; `use` then keeps the server alive."""
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
            # The modules that the program preloads, without its main module, which most workers do not need.
            wanted = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
            _server._preload_modules = [name for name in wanted if name != "__main__"]
        try:
            _server.ensure_running()
        except ChildProcessError:  # it has died, and a wait of the program for any child took its exit code
            _dropped(_server)
            _server = None
            return _connected(descriptors)
        made: tuple[int, int] = _server.connect_to_new_process(descriptors)
        return made


def use() -> None:
    """Count a worker that the server forked."""
    global _users
    with _lock:
        _users += 1


def leave() -> None:
    """Count a worker that has ended; the last one ends the server."""
    global _server, _users
    with _lock:
        _users -= 1
        if _users <= 0 and _server is not None:
            server, _server, _users = _server, None, 0
            _end(server)


def _end(server: Any) -> None:
    pid = server._forkserver_pid
    with suppress(ChildProcessError):  # a wait of the program took it: its id may be another process's by now
        if pid is not None and os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    _dropped(server)


def _dropped(server: Any) -> None:
    """Release this process's resources of a server that has ended or belongs to another process."""
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
    address = server._forkserver_address
    if address is not None and not util.is_abstract_socket_namespace(address):
        with suppress(OSError):
            os.unlink(address)


def _forget() -> None:
    """In a fork of the program: forget the server, which is the parent's. To hold its pipe would keep it alive."""
    global _lock, _server, _users
    _lock = threading.RLock()
    if _server is not None:
        os.close(_server._forkserver_alive_fd)
    _server, _users = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
