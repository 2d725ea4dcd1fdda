"""What the pool's tests have its workers call: small, and imported by them, so it needs next to nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Function = Callable[[Any], tuple[object, int]]


def echo() -> Function:
    return lambda item: (item, 0)


def sized() -> Function:
    """Answers that have as many bytes as the item says."""
    return lambda item: (item, item)


def gated(folder: str) -> Function:
    """An item that names a file waits until that file exists; others answer at once."""

    def call(item: Any) -> tuple[object, int]:
        if isinstance(item, str):
            while not os.path.exists(os.path.join(folder, item)):
                time.sleep(0.005)
        return item, 1

    return call


def lame() -> Function:
    """Items are ways to fail."""

    def call(item: Any) -> tuple[object, int]:
        if item == "raise":
            raise ZeroDivisionError("no such image")
        if item == "exit":
            os._exit(7)
        if item == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        if item == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "talk":
            for second in (b"1.234", b"1.235"):
                os.write(2, b"[ WARN:0@" + second + b"] global a.cpp:12 read bad data\n")
            os.write(1, b"and more\n")
        return item, 0

    return call


def surroundings() -> Function:
    """Answers with what the worker's process looks like."""
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    return lambda item: ({"pid": os.getpid(), "modules": modules, "session": os.getsid(0), "path": sys.path}, 0)


def threads(*arguments: Any) -> Function:
    """Answers with the threads of OpenCV in the conversion's own workers, and with a variable of their environment."""
    import cv2

    from fastdata.converters.recode import file_recoder

    file_recoder(*arguments)
    return lambda name: ((cv2.getNumThreads(), os.environ.get(name)), 0)


def busy(folder: str) -> Function:
    """Writes its process id to `folder`/pid-N and never answers, busy in Python as a decoder is in C."""

    def call(item: Any) -> tuple[object, int]:
        with open(os.path.join(folder, f"pid-{os.getpid()}.part"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, file.name.removesuffix(".part"))
        while True:
            signal.sigtimedwait([], 1)

    return call


def large(folder: str) -> Function:
    """Items are sizes in pixels; answers with how many large ones were at work at the same time at most."""
    from fastdata.converters import memory_limit

    def call(item: Any) -> tuple[object, int]:
        with memory_limit.current.hold(item):
            mine = os.path.join(folder, str(os.getpid()))
            with open(mine, "wb"):
                count = len(os.listdir(folder))
            os.unlink(mine)
        return count, 0

    return call


def unloadable(*_: object) -> Function:
    raise RuntimeError("this library is broken")


def out_of_files(*arguments: Any) -> Function:
    """The conversion's own function, in a process that may open no more files."""
    import resource

    from fastdata.converters.recode import file_recoder

    function = file_recoder(*arguments)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return function


def bad_sector(*arguments: Any) -> Function:
    """The conversion's own function; reading cat/0.jpg fails with the error number that the environment names."""
    from fastdata.converters.recode import file_recoder
    from fastdata.formats import folder

    read, number = folder.read_file, int(os.environ["TEST_ERRNO"])

    def fails(path: str) -> bytes:
        if path.endswith(os.path.join("cat", "0.jpg")):
            raise OSError(number, os.strerror(number), path)
        return read(path)

    folder.read_file = fails
    return file_recoder(*arguments)


def out_of_memory(*arguments: Any) -> Function:
    """The conversion's own function, in a process that gets no more memory than a small image takes."""
    import resource

    from fastdata.converters.recode import file_recoder
    from tests import images
    from tests.recoding import recode

    recode(images.png(images.photo(32, 32)), arguments[1])
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (4 << 20), resource.RLIM_INFINITY))
    return file_recoder(*arguments)
