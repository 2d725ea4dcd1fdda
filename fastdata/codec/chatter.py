"""Chatter: what decoders write to descriptor 2 while they decode, caught and told in one line.

In: a call that decodes. Out: its result, and what was said meanwhile. libpng, libtiff and, within OpenCV, libjpeg write
about damage to descriptor 2 and tell it in no other way. So that descriptor leads to a file without a name while one of
them is at work, and back afterwards. It belongs to the whole process, therefore:

- only calls that may be talkative are made here (a JPEG that simplejpeg reads never is);
- lines that are not a decoder's, of another thread of the program, go on to where they were meant for;
- where several threads decode at once and one of them was spoken of, each that may be meant decodes again alone.

A child that another thread starts in such a moment has the file as its stderr, and what it says is lost.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# What a decoder says about one file is kept up to here: enough for the reason, no flood.
_MOST = 300
_MOST_BYTES = 64 * _MOST
# "[ WARN:0@0.123] global file.cpp:12 function " and "/path/file.py:12: SomeWarning: ": times, threads and places that
# differ from run to run.
_NOISE = re.compile(r"^\[ *\w+: *\d+@[\d.]+\] (global \S+:\d+ \S+ )?|^\S+\.py:\d+: (?=\w+Warning: )", re.MULTILINE)
# The ways in which libjpeg, libpng and libtiff begin a line. libtiff names a function or the file that it was given.
_DECODERS = re.compile(
    rb"(?:Corrupt JPEG data: |Premature end of JPEG file|Invalid SOS parameters for|Inconsistent progression sequence"
    rb"|Unknown Adobe color transform|Warning: unknown JFIF revision|Application transferred too many scanlines"
    rb"|libpng (?:error|warning): |tempfile\.tif: |_?TIFF\w+: |MissingRequired: TIFF "
    rb"|(?:Fax3|LZW|ZIP|O?JPEG|PackBits|PixarLog|Log\w{1,4}|LZMA|ZSTD|LERC|WebP|Thunder|NeXT|Dump)\w*"
    rb"(?:Decode|Lib|Fixup|Setup|GetField|Seek)\w*: )"
)
# How long a thread waits for others to finish their decoding. Longer than any takes: one that was torn away by an
# interrupt never will.
_PATIENCE = 60.0


def condense(text: str) -> str:
    """Lines of decoder chatter as one line, each said once, cut where it gets long.

    >>> condense("[ WARN:0@0.12] global a.cpp:3 f bad data\\n[ WARN:0@0.15] global a.cpp:3 f bad data\\n")
    'bad data'
    """
    lines = dict.fromkeys(" ".join(line.split()) for line in _NOISE.sub("", text).splitlines() if line.strip())
    line = "; ".join(lines)
    return line if len(line) <= _MOST else line[: _MOST - 3] + "..."


def anonymous_file() -> int:
    """A descriptor of a file without a name, for what decoders write."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fastdata-log")
    handle, path = tempfile.mkstemp(prefix="fastdata-log")
    with contextlib.suppress(OSError):  # Windows keeps it until it is closed
        os.unlink(path)
    return handle


class _Ear:
    """Descriptor 2, led to a file while at least one thread is inside."""

    def __init__(self) -> None:
        self._gate = threading.Lock()  # held by a thread that must be alone
        self._state = threading.Condition()
        self._inside: dict[int, int] = {}  # by thread: how long the text was when it came in
        self._entries = 0
        self._file = self._kept = -1
        self._passed = 0  # how much of the text was looked through for lines of the program's own

    def hear(self, call: Callable[[], T]) -> tuple[T, str]:
        """The result of a call, and what a decoder said in it, on one line."""
        with self._gate:
            entry = self._enter()
        result, said, sure = self._made(call, entry)
        if said and not sure:
            with self._gate:
                with self._state:
                    self._state.wait_for(lambda: not self._inside, _PATIENCE)
                result, said, _ = self._made(call, self._enter())
        return result, condense(said.decode("utf-8", "replace"))

    def _made(self, call: Callable[[], T], entry: int) -> tuple[T, bytes, bool]:
        """The result, what decoders said meanwhile, and whether no other thread can be meant."""
        said, sure = b"", False
        try:
            result = call()
        finally:
            said, sure = self._leave(entry)
        return result, said, sure

    def _enter(self) -> int:
        """The number of this entry; 0 where others are inside."""
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
            said = b"".join(line for line in lines if _DECODERS.match(line))
            if self._inside:
                self._pass_on(all_of_it=False)
            else:
                self.close()
                self._state.notify_all()
            return said[:_MOST_BYTES], entry == self._entries

    def _length(self) -> int:
        return os.fstat(self._file).st_size if self._file >= 0 else 0

    def _text(self, begin: int, end: int) -> list[bytes]:
        """The text between two places, as lines; the last one may lack its end."""
        return re.findall(rb"[^\r\n]*[\r\n]|[^\r\n]+\Z", _read(self._file, begin, end - begin))

    def _pass_on(self, *, all_of_it: bool) -> None:
        """Lines that are not a decoder's go where they would have gone; one that lacks its end waits for it."""
        end = self._length()
        for line in self._text(self._passed, end) if end > self._passed else ():
            if line[-1:] not in b"\r\n" and not all_of_it:
                return
            self._passed += len(line)
            if self._kept >= 0 and not _DECODERS.match(line):
                with contextlib.suppress(OSError):
                    os.write(self._kept, line)

    def _open(self) -> None:
        """Lead descriptor 2 to a file; it stays as it is where there are no descriptors left for that."""
        self.close()
        try:
            self._file = anonymous_file()
            with contextlib.suppress(OSError):  # it may be closed
                self._kept = os.dup(2)
            os.dup2(self._file, 2)
        except OSError:
            self._restore()

    def close(self) -> None:
        """Lead it back. Nothing to do but where an interrupt tore a thread away, or for the last that leaves."""
        self._pass_on(all_of_it=True)
        self._restore()

    def _restore(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                if os.path.sameopenfile(self._file, 2):  # else somebody has put another one there
                    os.dup2(self._kept, 2) if self._kept >= 0 else os.close(2)
            os.close(self._file)
        if self._kept >= 0:
            os.close(self._kept)
        self._file = self._kept = -1
        self._passed = 0

    def before_fork(self) -> None:
        self._state.acquire()

    def after_fork(self) -> None:
        """In the parent."""
        self._state.release()

    def after_fork_in_child(self) -> None:
        """Only the thread that forked lives there, and it is not inside; what was said is the parent's to tell."""
        self._restore()
        self._gate, self._state = threading.Lock(), threading.Condition()
        self._inside.clear()


def _read(file: int, begin: int, length: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, length, begin)
    os.lseek(file, begin, os.SEEK_SET)
    text = os.read(file, length)
    os.lseek(file, 0, os.SEEK_END)
    return text


_ear = _Ear()
hear = _ear.hear
atexit.register(_ear.close)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_ear.before_fork, after_in_parent=_ear.after_fork, after_in_child=_ear.after_fork_in_child
    )
