"""Descriptors: regular files opened for reading, no more of them than the process may have.

In: paths. Out: descriptors, and handles, which are kept for the files that are read again and again. All readers of a
process share what it may have open, so one list knows all their handles: those that were not used for longest are let
go, and more of them where descriptors run out. Anything but a regular file is refused before it is opened: a pipe would
hang until something writes to it, and to open a device may do something.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable

from fastdata.errors import FormatError, raise_resource_error

# O_NONBLOCK: should a pipe replace the file just now, opening it does not wait. O_NOCTTY: a terminal does not
# become ours.
_NAMES = ("O_RDONLY", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
_FLAGS = sum(getattr(os, name, 0) for name in _NAMES)
_RUN_OUT = (errno.EMFILE, errno.ENFILE)
# What other threads have just taken or released comes back in this time: reading one sample takes far less.
_WAITS, _WAIT_S = 20, 0.01
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file, which the caller closes, and the file's status.

    Raises:
        FormatError: it is a pipe, a socket, a device, a folder, or a link to one.
        OSError: it cannot be opened; for want of descriptors only when none can be released.
    """
    check_regular(path, os.stat(path))
    descriptor = _open(path)
    try:
        status = os.fstat(descriptor)
        check_regular(path, status)  # something else may have replaced it since
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def check_regular(path: str, status: os.stat_result) -> None:
    """Refuse anything but a regular file.

    Raises:
        FormatError: naming what it is, and what to do.
    """
    if stat.S_ISREG(status.st_mode):
        return
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "of no known kind")
    cure = "name the data set itself" if stat.S_ISDIR(status.st_mode) else "copy what it gives to a file and name that"
    raise FormatError(f"{path}: not a regular file ({kind}): data are read at any offset, in any order; {cure}")


def _open(path: str) -> int:
    waits = 0
    while True:
        try:
            return os.open(path, _FLAGS)
        except OSError as error:
            if error.errno not in _RUN_OUT:
                raise_resource_error(error, path)
                raise
            if not handles.let_one_go():
                if waits == _WAITS:
                    raise_resource_error(error, path)
                    raise
                waits += 1
                time.sleep(_WAIT_S)


class Handle:
    """A descriptor of one of a reader's files, closed when it is no longer used.

    Attributes:
        used: read since it was last looked at; whoever reads sets it.
    """

    __slots__ = ("__weakref__", "_file", "_owner", "descriptor", "used")

    def __init__(self, descriptor: int, owner: Handles, file: int) -> None:
        self.descriptor, self.used = descriptor, True
        self._owner, self._file = weakref.ref(owner), file

    def leave(self) -> None:
        """Its reader opens the file anew when it needs it again; a thread that reads just now keeps it till then."""
        owner = self._owner()
        if owner is not None and owner.get(self._file) is self:
            owner.pop(self._file, None)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


class Handles(dict[int, Handle]):
    """The handles of one reader, by the files' numbers; they are closed with it."""

    __slots__ = ("__weakref__",)


class _AllHandles:
    """Every handle of the process, without keeping any; the ones that were looked at longest ago come first."""

    def __init__(self) -> None:
        self._order: OrderedDict[weakref.ref[Handle], None] = OrderedDict()
        self._gone: deque[weakref.ref[Handle]] = deque()  # closed since; filled wherever the last user drops it
        self.renew_lock()

    def renew_lock(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self._lock = threading.RLock()  # a signal handler may read, too, in a thread that holds it

    def add(self, handle: Handle, most: int) -> None:
        """Note a handle; others go, where there would be more than `most`."""
        with self._lock:
            self._forget_closed()
            while len(self._order) >= most and self.let_one_go():
                pass
            self._order[weakref.ref(handle, self._gone.append)] = None

    def let_one_go(self) -> bool:
        """Release the handle that was unused for longest; False where there is none."""
        with self._lock:
            self._forget_closed()
            chances = 2 * len(self._order)
            while self._order:
                known, _ = self._order.popitem(last=False)
                handle, chances = known(), chances - 1
                if handle is None:
                    continue
                if handle.used and chances > 0:  # a second chance, at the end of the row
                    handle.used = False
                    self._order[known] = None
                    continue
                handle.leave()
                return True
            return False

    def _forget_closed(self) -> None:
        while self._gone:
            self._order.pop(self._gone.popleft(), None)


handles = _AllHandles()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=handles.renew_lock)
