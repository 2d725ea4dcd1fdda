"""SharedBlock: anonymous memory that processes share, without a name that could outlive them.

Forked children inherit a block; spawn and forkserver children receive it while they are being started. On Linux it is
a memfd: it does not use `/dev/shm` (64 MB in a container), and the kernel frees it with the last process that maps it,
however that process ends. Elsewhere it is an unlinked temporary file. `free_memory` returns how much a block may take.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context
from typing import TYPE_CHECKING, Any

from fastdata.errors import OutOfMemoryError, ResourceError
from fastdata.limits import refused

if TYPE_CHECKING:
    from typing_extensions import Self

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Record locks exclude other processes, but not other threads of this one; this lock does, for microseconds only.
_threads = threading.Lock()


def _unlock_child() -> None:
    global _threads  # another thread of the parent may have held it when this child was forked
    _threads = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_child)


class SharedBlock:
    """A block of shared memory without a name.

    It is inherited by fork, and pickled only while a process is being started (as an argument of a `Process`, by a
    DataLoader): no other pickle can carry a descriptor.

    Args:
        size: the number of bytes, at least 1.

    Raises:
        ResourceError: the system does not provide so much memory.
    """

    def __init__(self, size: int) -> None:
        with _allocation_errors(size):
            descriptor = anonymous_file()
            try:
                os.ftruncate(descriptor, size)
                self._adopt(descriptor, size)
            except BaseException:
                os.close(descriptor)
                raise

    def _adopt(self, descriptor: int, size: int) -> None:
        self._map: mmap.mmap | None = mmap.mmap(descriptor, size)
        self._descriptor, self.size = descriptor, size
        self._close_descriptor = weakref.finalize(self, os.close, descriptor)  # also if close() is never called
        self._close_descriptor.atexit = False

    @property
    def buffer(self) -> memoryview:
        """A new, writable view of the whole block. The memory stays until all its views are dropped.

        Raises:
            ValueError: the block is closed.
        """
        if self._map is None:
            raise ValueError("this shared block is closed")
        return memoryview(self._map)

    def grow(self, size: int) -> None:
        """Make the block `size` bytes long; memory is allocated when it is touched.

        Every process that holds the block must call this. Earlier views keep showing the same memory.

        Raises:
            ResourceError: the system does not provide so much memory.
        """
        if self._map is None:
            raise ValueError("this shared block is closed")
        with _allocation_errors(size):
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._map, self.size = mmap.mmap(self._descriptor, size), size

    @contextmanager
    def locked(self) -> Iterator[memoryview]:
        """Hold the block's lock, which excludes other processes and threads, and yield a view.

        The kernel releases the lock when its holder dies, so nobody waits for a dead process.
        """
        with _threads, self.buffer as view:
            _lock(self._descriptor)
            try:
                yield view
            finally:
                _unlock(self._descriptor)

    def close(self) -> None:
        """Release the memory in this process; others keep theirs. A second call does nothing."""
        self._close_descriptor()
        # Not mmap.close(), which fails while a view is alive: without this reference, the map ends with its last view.
        self._map = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., SharedBlock], tuple[Any, int]]:
        if context.get_spawning_popen() is None:
            raise TypeError(
                "shared memory can only be pickled while a process is being started (as an argument of "
                "multiprocessing.Process or inside a DataLoader's data set)"
            )
        if self._map is None:
            raise ValueError("this shared block is closed")
        return _attach, (_passed(self._descriptor), self.size)

    def __repr__(self) -> str:
        return f"<SharedBlock of {self.size} bytes{', closed' if self._map is None else ''}>"


@contextmanager
def _allocation_errors(size: int) -> Iterator[None]:
    """Raise what the system refuses as a ResourceError with the reason."""
    try:
        yield
    except OSError as error:
        kind = OutOfMemoryError if error.errno == errno.ENOMEM else ResourceError
        reason = refused(error) or error.strerror
        raise kind(f"{size:,} bytes of shared memory cannot be had: {reason}") from error


def _attach(passed: Any, size: int) -> SharedBlock:
    block = SharedBlock.__new__(SharedBlock)
    with _allocation_errors(size):
        block._adopt(_received(passed), size)
    return block


def anonymous_file() -> int:
    """A descriptor of an empty file without a name, which is deleted with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("fastdata", os.MFD_CLOEXEC)
        except OSError as error:  # an old kernel, or a sandbox that forbids it
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # a temporary file would need them, too
                raise
    # On Windows an open file cannot be unlinked; O_TEMPORARY deletes it with its last handle instead.
    descriptor, name = tempfile.mkstemp(prefix="fastdata-")
    if sys.platform == "win32":
        os.close(descriptor)
        return os.open(name, os.O_RDWR | os.O_BINARY | os.O_NOINHERIT | os.O_TEMPORARY)
    os.unlink(name)
    return descriptor


if sys.platform == "win32":
    from multiprocessing.reduction import DupHandle

    def _passed(descriptor: int) -> Any:
        return DupHandle(msvcrt.get_osfhandle(descriptor), 0, context.get_spawning_popen().pid)

    def _received(passed: Any) -> int:
        return msvcrt.open_osfhandle(passed.detach(), os.O_RDWR | os.O_BINARY)

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    from multiprocessing.reduction import DupFd

    def _passed(descriptor: int) -> Any:
        return DupFd(descriptor)

    def _received(passed: Any) -> int:
        descriptor: int = passed.detach()
        os.set_inheritable(descriptor, False)  # programs that the child starts must not inherit it
        return descriptor

    def _lock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)

    def _unlock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def free_memory() -> int:
    """The bytes that this process and its children may still take: the machine's, or its control group's if fewer."""
    return max(0, min([_machine_free(), *_group_free()]))


def _machine_free() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        pages = os.sysconf("SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES")
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize  # unknown here: nothing is refused


def _group_free(root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> Iterator[int]:
    """Yield the free bytes of each control group around this process, of versions 2 and 1."""
    try:
        with open(membership, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers == "":
            base, limit, usage = root, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, usage = os.path.join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = path.strip("/")
        while True:  # every ancestor may set a limit; in a container the path may be the host's and not exist
            free = _free_below_limit(os.path.join(base, folder), limit, usage)
            if free is not None:
                yield free
            if not folder:
                break
            folder = folder.rpartition("/")[0]


def _free_below_limit(folder: str, limit: str, usage: str) -> int | None:
    try:
        most, used = _number(os.path.join(folder, limit)), _number(os.path.join(folder, usage))
        with open(os.path.join(folder, "memory.stat"), encoding="ascii") as file:
            stat = dict(line.split(" ", 1) for line in file)
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
    # Clean file pages count as used, but the kernel takes them back when memory is asked for.
    reclaimable = int(stat.get("total_inactive_file", stat.get("inactive_file", "0")))
    return most - max(0, used - reclaimable)


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())
