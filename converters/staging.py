"""Staging: a data set is built beside its target and moved there in one step; nothing half-written looks whole.

Beside DST lies, while a run is at work, the hidden folder `.NAME.fastdata/`:

    lock    held (flock) by the run; a second run to the same target is refused
    new     what is being built (a sink may put more beside it)
    old     the data set that is being replaced, where the system cannot exchange two names in one step

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
# Bytes that longer names have than the data set: `.NAME.fastdata` (10) beside it, shards `NAME-000000.tar` (11) in it.
_ADDED_BYTES = 11
# Where the system does not say how long a name may be: what nearly all file systems take.
_NAME_BYTES = 255


class Staging:
    """The folder in which one data set is built.

    Attributes:
        target: where the finished data set goes.
        new: where to build it; nothing is there yet.
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
                # Runs also when this object is dropped, and at the end of Python: whatever tears a run apart.
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
            if os.path.islink(self._folder):  # clearing it would remove other files
                raise ConvertError(f"{self._folder!r} is a link; remove it")
            lock = os.path.join(self._folder, "lock")
            try:
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
            except FileNotFoundError:
                continue  # the run before removed its folder between our two steps
            try:
                _flock(descriptor)
                # The run before may have removed the file that we have locked: then it guards nothing.
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
        """Move the finished data set to its target; what was there is removed after that."""
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
        else:  # no such call here: look and rename, in two steps
            if not os.path.lexists(self.target):
                os.rename(self.new, self.target)
                return
        raise OutputExistsError(
            f"{self.target!r} was created during the conversion; it was not changed, and nothing was written"
        )

    def discard(self) -> None:
        """Remove what was built and release the lock; a data set that was half replaced is put back."""
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
    """Refuse a name that leaves no room for the longer ones that are built from it.

    Raises:
        ConvertError: it is too long for the file system.
    """
    parent, name = os.path.split(os.path.abspath(target))
    most = _longest_name(parent) - _ADDED_BYTES
    length = len(os.fsencode(name))
    if length > most:
        raise ConvertError(
            f"cannot write {target!r}: a name of {length} bytes is too long, since the names of the files that are "
            f"built there are longer; use a name of at most {most} bytes"
        )


def _longest_name(folder: str) -> int:
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except (OSError, ValueError, AttributeError):  # the folder is still to be made; Windows has no such call
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
        if os.getpid() == process:  # what is built is not a forked child's
            _recover(old, target)
            _clear(folder)
            os.unlink(os.path.join(folder, "lock"))
            os.rmdir(folder)
    except OSError:
        pass  # the next run to this target clears the rest; the error that led here matters more
    finally:
        os.close(lock)


def _recover(old: str, target: str) -> bool:
    """Put a data set back whose replacement was interrupted; was there one?"""
    if not os.path.lexists(old) or os.path.lexists(target):
        return False
    os.rename(old, target)
    return True


def _clear(folder: str) -> None:
    for name in os.listdir(folder):
        if name != "lock":
            _remove(os.path.join(folder, name))


def _flock(descriptor: int) -> None:
    """Lock without waiting; where the system or file system has no locks, go on without.

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
    """renameat2: swap two names, or rename to a free one, in one step; False where system or file system cannot.

    Raises:
        OSError: it can, but not these (FileExistsError: the name is not free).
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
    # A folder of nothing but these is a data set, whole or not. Others hold files of users.
    return all(name in (MANIFEST_NAME, INDEX_NAME) or is_data_set_file(name) for name in os.listdir(path))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _sync_folder(path: str) -> None:
    """Make a rename last through a power cut, where folders can be synced."""
    with contextlib.suppress(OSError), _descriptor(path) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def _descriptor(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
