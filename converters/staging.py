"""Staging: build a data set beside its target and move it there in one step, so nothing half-written looks complete.

During a run the hidden folder `.NAME.fastdata/` lies beside DST:

    lock    held (flock) by the run; a second run to the same target is refused
    new     the data set being built (a sink may put other files beside it)
    old     the data set being replaced, if the system cannot exchange two names in one step

A killed run leaves the folder behind. The next run to the same target takes the lock, puts `old` back if the target is
free, and removes the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import warnings
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from fastdata.errors import ConvertError, OutputExistsError
from fastdata.formats import is_data_set_file
from fastdata.formats.index import INDEX_NAME
from fastdata.manifest import MANIFEST_NAME
from fastdata.signals import deferred_signals

if TYPE_CHECKING:
    from typing_extensions import Self

_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2  # linux/fs.h
# Bytes added to the data set's name: `.NAME.fastdata` (10) beside it, shards `NAME-000000.tar` (11) in it.
_ADDED_BYTES = 11
# The longest name if the system does not report it: that of nearly all file systems.
_NAME_BYTES = 255


class Staging:
    """The folder in which one data set is built.

    Attributes:
        target: the path of the finished data set.
        new: the path to build it at; nothing is there yet.
    """

    def __init__(self, target: str, *, overwrite: bool = False) -> None:
        """Lock the target.

        Raises:
            OutputExistsError: something is at `target`, and not `overwrite`, or it is a folder with other things than
                a data set; it is not changed.
            ConvertError: another run is writing there, the folder cannot be written, or the name is too long.
        """
        self.target = os.path.abspath(target)
        check_name(self.target)
        parent, name = os.path.split(self.target)
        if not name or os.path.ismount(self.target):
            raise ConvertError(f"{target!r} cannot be replaced by a data set; name a file or folder in it")
        self._folder = os.path.join(parent, f".{name}.fastdata")
        self.new = os.path.join(self._folder, "new")
        self._old = os.path.join(self._folder, "old")
        self._overwrite = overwrite
        try:
            with deferred_signals():
                lock = self._locked()
                # Also runs when this object is dropped and when Python ends, so no interrupted run leaves its folder.
                self._release = weakref.finalize(
                    self, _release, self._folder, self._old, self.target, lock, os.getpid()
                )
            self._prepare(target)
        except OSError as error:
            self.discard()
            if isinstance(error, ConvertError):
                raise
            raise ConvertError(
                f"cannot write {target!r}: {error.strerror or error}; name a path that can be written"
            ) from error
        except BaseException:
            self.discard()
            raise

    def _prepare(self, target: str) -> None:
        if _recover(self._old, self.target):
            warnings.warn(
                f"an earlier run was killed while it replaced {self.target!r}; the old data set was put back there",
                stacklevel=4,
            )
        _clear(self._folder)
        check_target(target, overwrite=self._overwrite)

    def _locked(self) -> int:
        while True:
            os.makedirs(self._folder, exist_ok=True)
            if os.path.islink(self._folder):  # to clear it would remove other files
                raise ConvertError(f"{self._folder!r} is a link; remove it")
            lock = os.path.join(self._folder, "lock")
            try:
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
            except FileNotFoundError:
                continue  # the previous run removed its folder between the two steps
            try:
                _flock(descriptor)
                # The previous run may have removed the locked file: then the lock protects nothing.
                if os.path.exists(lock) and os.path.samestat(os.stat(lock), os.fstat(descriptor)):
                    return descriptor
            except BlockingIOError as error:
                os.close(descriptor)
                raise ConvertError(
                    f"another run is writing {self.target!r} now; wait for it, or name another path"
                ) from error
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def commit(self) -> None:
        """Move the finished data set to its target, then remove what was there."""
        if os.path.isdir(self.new):
            _sync_folder(self.new)
        if self._overwrite and os.path.lexists(self.target):
            if not _rename_flagged(self.new, self.target, _RENAME_EXCHANGE):
                os.rename(self.target, self._old)
                os.rename(self.new, self.target)
        else:
            self._move_to_free_target()
        _sync_folder(os.path.dirname(self.target))
        self.discard()

    def _move_to_free_target(self) -> None:
        try:
            if _rename_flagged(self.new, self.target, _RENAME_NOREPLACE):
                return
        except FileExistsError:
            pass
        else:  # the system has no such call: check and rename in two steps
            if not os.path.lexists(self.target):
                os.rename(self.new, self.target)
                return
        raise OutputExistsError(
            f"{self.target!r} was created during the conversion; it was not changed, and nothing was written"
        )

    def discard(self) -> None:
        """Remove what was built and release the lock; a data set whose replacement was not finished is put back."""
        if hasattr(self, "_release"):
            with deferred_signals():
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def check_name(target: str) -> None:
    """Refuse a name that leaves no room for the longer names that are made from it.

    Raises:
        ConvertError: it is too long for the file system.
    """
    parent, name = os.path.split(os.path.abspath(target))
    most = _longest_name(parent) - _ADDED_BYTES
    length = len(os.fsencode(name))
    if length > most:
        raise ConvertError(
            f"cannot write {target!r}: a name of {length} bytes is too long, because the names of the files that "
            f"are built there are longer; use a name of at most {most} bytes"
        )


def _longest_name(folder: str) -> int:
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except (OSError, ValueError, AttributeError):  # the folder does not exist yet; Windows has no such call
        return _NAME_BYTES


def check_target(target: str, *, overwrite: bool) -> None:
    """Refuse a target that exists.

    Raises:
        OutputExistsError: something is there, and not `overwrite`, or it is a folder that is never replaced.
    """
    if not os.path.lexists(target):
        return
    if not _is_replaceable(target):
        what = "not a regular file but a pipe, socket or device"
        if os.path.isdir(target):
            what = "a folder that holds files which are not part of a data set"
        raise OutputExistsError(f"{target!r} is {what}; it was not changed. Name another path, or remove it yourself")
    if not overwrite:
        raise OutputExistsError(
            f"{target!r} exists already and was not changed; use --overwrite (overwrite=True) to replace it"
        )


def _release(folder: str, old: str, target: str, lock: int, process: int) -> None:
    try:
        if os.getpid() == process:  # a forked child must not remove its parent's files
            _recover(old, target)
            _clear(folder)
            os.unlink(os.path.join(folder, "lock"))
            os.rmdir(folder)
    except OSError:
        pass  # the next run to this target clears the rest; the error being raised matters more
    finally:
        os.close(lock)


def _recover(old: str, target: str) -> bool:
    """Put a data set back whose replacement was interrupted; return whether there was one."""
    if not os.path.lexists(old) or os.path.lexists(target):
        return False
    os.rename(old, target)
    return True


def _clear(folder: str) -> None:
    for name in os.listdir(folder):
        if name != "lock":
            _remove(os.path.join(folder, name))


def _flock(descriptor: int) -> None:
    """Lock without waiting; do nothing if the system or file system has no locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL):
            raise


def _rename_flagged(first: str, second: str, flag: int) -> bool:
    """renameat2: swap two names, or rename to a free one, in one step; False if system or file system cannot.

    Raises:
        OSError: the call failed for these names (FileExistsError: the name is not free).
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # a C library older than 2018
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), second)


def _is_replaceable(path: str) -> bool:
    if os.path.islink(path) or not os.path.isdir(path):
        return os.path.islink(path) or os.path.isfile(path)
    # A folder of these files alone is a data set, complete or not. Any other file is the user's.
    return all(name in (MANIFEST_NAME, INDEX_NAME) or is_data_set_file(name) for name in os.listdir(path))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _sync_folder(path: str) -> None:
    """Sync a folder so that a rename survives a power cut, if the system can."""
    with contextlib.suppress(OSError), _descriptor(path) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def _descriptor(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
