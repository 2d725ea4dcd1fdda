"""Open regular files for reading, within the number of descriptors that the process may have.

Files that are read again and again keep a handle. All readers of a process share the limit on open files, so one list
holds all their handles: the least recently used are released, and more of them if descriptors run out. Anything but a
regular file is refused before it is opened: a pipe would block until something writes to it, and opening a device may
have side effects.
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

# O_NONBLOCK: if a pipe has just replaced the file, opening it does not block. O_NOCTTY: a terminal does not become
# the controlling one.
_NAMES = ("O_RDONLY", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
_FLAGS = sum(getattr(os, name, 0) for name in _NAMES)
_RUN_OUT = (errno.EMFILE, errno.ENFILE)
# Long enough for other threads to release what they have just taken: reading one sample takes far less.
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
        OSError: it cannot be opened; for lack of descriptors only if none can be released.
    """
    check_regular(path, os.stat(path))
    descriptor = _open(path)
    try:
        status = os.fstat(descriptor)
        check_regular(path, status)  # it may have been replaced since
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
    advice = "give the data set itself" if stat.S_ISDIR(status.st_mode) else "copy its output to a file and give that"
    raise FormatError(f"{path}: not a regular file ({kind}): data are read at any offset, in any order; {advice}")


def _open(path: str) -> int:
    waits = 0
    while True:
        try:
            return os.open(path, _FLAGS)
        except OSError as error:
            if error.errno not in _RUN_OUT:
                raise_resource_error(error, path)
                raise
            if not handles.release_one():
                if waits == _WAITS:
                    raise_resource_error(error, path)
                    raise
                waits += 1
                time.sleep(_WAIT_S)


class Handle:
    """A descriptor of one of a reader's files, closed when it is no longer used.

    Attributes:
        used: whether it was read since it was last considered for release; every read sets it.
    """

    __slots__ = ("__weakref__", "_file", "_owner", "descriptor", "used")

    def __init__(self, descriptor: int, owner: Handles, file: int) -> None:
        self.descriptor, self.used = descriptor, True
        self._owner, self._file = weakref.ref(owner), file

    def release(self) -> None:
        """Remove it from its reader, which opens the file again when needed; a thread that is reading keeps it."""
        owner = self._owner()
        if owner is not None and owner.get(self._file) is self:
            owner.pop(self._file, None)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


class Handles(dict[int, Handle]):
    """The handles of one reader, by the files' numbers; they are closed with it."""

    __slots__ = ("__weakref__",)


class _AllHandles:
    """Weak references to every handle of the process; the ones considered longest ago come first."""

    def __init__(self) -> None:
        self._order: OrderedDict[weakref.ref[Handle], None] = OrderedDict()
        self._closed: deque[weakref.ref[Handle]] = deque()  # appended to when the last user drops a handle
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._lock = threading.RLock()  # reentrant: a signal handler may read in a thread that holds it

    def add(self, handle: Handle, most: int) -> None:
        """Add a handle; release others if there would be more than `most`."""
        with self._lock:
            self._forget_closed()
            while len(self._order) >= most and self.release_one():
                pass
            self._order[weakref.ref(handle, self._closed.append)] = None

    def release_one(self) -> bool:
        """Release the handle that was unused for longest; False if there is none."""
        with self._lock:
            self._forget_closed()
            chances = 2 * len(self._order)
            while self._order:
                known, _ = self._order.popitem(last=False)
                handle, chances = known(), chances - 1
                if handle is None:
                    continue
                if handle.used and chances > 0:  # a second chance, at the end of the queue
                    handle.used = False
                    self._order[known] = None
                    continue
                handle.release()
                return True
            return False

    def _forget_closed(self) -> None:
        while self._closed:
            self._order.pop(self._closed.popleft(), None)


handles = _AllHandles()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=handles.renew_lock)
