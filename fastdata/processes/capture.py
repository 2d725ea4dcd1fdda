"""Capture what libraries write to descriptor 2 during a call, because some report in no other way.

Descriptor 2 is redirected to an anonymous file during the call. It belongs to the whole process, therefore:

- only calls that may write are made here;
- lines that are not wanted, which other threads of the program wrote, are passed on to the original stderr;
- if a wanted line came while several threads were inside, each thread that may have caused it repeats its call alone.

A child that another thread starts during a call has the file as its stderr, and what it writes is lost.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import threading
from collections.abc import Callable
from typing import TypeVar

from fastdata.sharedmem import anonymous_file

T = TypeVar("T")

# How long a thread waits for others to finish their calls: longer than any takes, because a thread that an interrupt
# ended never finishes.
_PATIENCE = 60.0


class Capture:
    """Redirects descriptor 2 to a file while at least one thread is inside. A process has one.

    Args:
        wanted: matches the beginning of wanted lines; others are passed on.
        most: how many bytes are kept of one call.
    """

    def __init__(self, wanted: re.Pattern[bytes], most: int) -> None:
        self._wanted, self._most = wanted, most
        self._alone = threading.Lock()  # held by a thread that repeats its call alone
        self._state = threading.Condition()
        self._inside: dict[int, int] = {}  # thread -> the length of the text when it entered
        self._entries = 0
        self._file = self._kept = -1
        self._passed = 0  # how much of the text was searched for lines to pass on
        # libpng writes a line and its end separately: the lines of two threads may be one, and an empty one follows.
        self._ends_to_come = 0
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=lambda: self._state.acquire(),  # looked up at each fork, which replaces it
                after_in_parent=lambda: self._state.release(),
                after_in_child=self._after_fork,
            )

    def during(self, call: Callable[[], T]) -> tuple[T, bytes]:
        """Make a call; return its result and the wanted lines that it wrote."""
        with self._alone:
            entry = self._enter()
        result, lines, sure = self._made(call, entry)
        if lines and not sure:
            with self._alone:
                with self._state:
                    self._state.wait_for(lambda: not self._inside, _PATIENCE)
                result, lines, _ = self._made(call, self._enter())
        return result, lines

    def _made(self, call: Callable[[], T], entry: int) -> tuple[T, bytes, bool]:
        """The result, the wanted lines, and whether no other thread can have written them."""
        try:
            result = call()
        finally:
            lines, sure = self._leave(entry)
        return result, lines, sure

    def _enter(self) -> int:
        """The number of this entry; 0 if other threads are inside."""
        with self._state:
            self._inside.pop(threading.get_ident(), None)
            alone = not self._inside
            if alone:
                self._open()
            self._inside[threading.get_ident()] = self._length()
            self._entries += 1
            return self._entries if alone else 0

    def _leave(self, entry: int) -> tuple[bytes, bool]:
        with self._state:
            begin, end = self._inside.pop(threading.get_ident(), 0), self._length()
            lines = dict.fromkeys(self._text(begin, end)) if end > begin else {}
            wanted = b"".join(line for line in lines if self._wanted.match(line))
            if self._inside:
                self._pass_on(all_of_it=False)
            else:
                self.close()
                self._state.notify_all()
            return wanted[: self._most], entry == self._entries

    def _length(self) -> int:
        return os.fstat(self._file).st_size if self._file >= 0 else 0

    def _text(self, begin: int, end: int) -> list[bytes]:
        """The text between two offsets, as lines; the last one may be incomplete."""
        return re.findall(rb"[^\r\n]*[\r\n]|[^\r\n]+\Z", _read(self._file, begin, end - begin))

    def _pass_on(self, *, all_of_it: bool) -> None:
        """Write lines that are not wanted to the original stderr; an incomplete one waits, unless `all_of_it`."""
        end = self._length()
        for line in self._text(self._passed, end) if end > self._passed else ():
            if line[-1:] not in b"\r\n" and not all_of_it:
                return
            self._passed += len(line)
            if self._wanted.match(line):
                self._ends_to_come += len(self._wanted.findall(line)) - 1
            elif self._ends_to_come and not line.strip():
                self._ends_to_come -= 1
            elif self._kept >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._kept, line)

    def _open(self) -> None:
        """Redirect descriptor 2 to a file; leave it as it is if no descriptors are left for that."""
        self.close()
        try:
            self._file = anonymous_file()
            with contextlib.suppress(OSError):  # it may be closed
                self._kept = os.dup(2)
            os.dup2(self._file, 2)
        except OSError:
            self._restore()

    def close(self) -> None:
        """Restore descriptor 2. Called when the last thread leaves, and in case an interrupt ended a thread inside."""
        self._pass_on(all_of_it=True)
        self._restore()

    def _restore(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                if os.path.sameopenfile(self._file, 2):  # else another part of the program has replaced it
                    os.dup2(self._kept, 2) if self._kept >= 0 else os.close(2)
            os.close(self._file)
        if self._kept >= 0:
            os.close(self._kept)
        self._file = self._kept = -1
        self._passed = self._ends_to_come = 0

    def _after_fork(self) -> None:
        """Reset. Only the thread that forked lives in the child, and it is not inside; the parent reports the text."""
        self._restore()
        self._alone, self._state = threading.Lock(), threading.Condition()
        self._inside.clear()


def _read(file: int, begin: int, length: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, length, begin)
    os.lseek(file, begin, os.SEEK_SET)
    text = os.read(file, length)
    os.lseek(file, 0, os.SEEK_END)
    return text
