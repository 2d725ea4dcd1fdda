"""Fixtures of every test: a check for leaks, and a small folder of images.

Descriptors, threads and child processes that a test leaves behind fail it. What libraries open once and keep (devices,
shared objects, the helpers of multiprocessing) is no leak.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from tests import images

# No test may depend on how fast the machine is; a red run must be red again.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.load_profile("house")

# Children of a shell's background job or of `nohup` ignore signals, which tests of signals need.
for _name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _name == "SIGINT" else signal.SIG_DFL)

START_METHODS = [name for name in ("fork", "forkserver", "spawn") if name in multiprocessing.get_all_start_methods()]

# The end of a process or thread is noticed a little after the call that ends it; this is only the time until a real
# leak is reported.
_GRACE_S = 5.0
_DESCRIPTORS = Path("/proc/self/fd")
# Opened once by a library and kept: devices, kernel tables, shared objects, fonts, time zones.
_KEPT_PREFIXES = ("/dev/", "/proc/", "/sys/", "/usr/", "/etc/", "/lib", "anon_inode:")


def _helpers_of_multiprocessing() -> tuple[set[int], set[int]]:
    """Process ids and descriptors of the resource tracker and the fork server, which live until Python ends."""
    from multiprocessing import forkserver, resource_tracker

    tracker, server = resource_tracker._resource_tracker, forkserver._forkserver
    pids = {getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None)}
    fds = {getattr(tracker, "_fd", None), getattr(server, "_forkserver_alive_fd", None)}
    return {pid for pid in pids if pid}, {fd for fd in fds if fd}


def _descriptors() -> Counter[str]:
    """What each open descriptor leads to; pipes and sockets by their kind and number."""
    if not _DESCRIPTORS.is_dir():
        return Counter()
    kept = _helpers_of_multiprocessing()[1]
    found: Counter[str] = Counter()
    for name in os.listdir(_DESCRIPTORS):
        try:
            target = os.readlink(_DESCRIPTORS / name)
        except OSError:  # the listing's own descriptor
            continue
        if int(name) not in kept and not target.startswith(_KEPT_PREFIXES):
            found[target] += 1
    return found


def _children() -> set[int]:
    kept = _helpers_of_multiprocessing()[0]
    return {child.pid for child in psutil.Process().children()} - kept


def _leaks(fds: Counter[str], threads: set[threading.Thread], children: set[int]) -> list[str]:
    multiprocessing.active_children()  # reaps what has ended
    found = [f"descriptor of {target}" for target in _descriptors() - fds]
    found += [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads]
    for pid in _children() - children:
        try:
            found.append(f"child process {pid}: {' '.join(psutil.Process(pid).cmdline())[:200]}")
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves descriptors, threads or child processes behind."""
    if request.node.get_closest_marker("keeps_open"):
        yield
        return
    fds, threads, children = _descriptors(), set(threading.enumerate()), _children()
    yield
    deadline = None
    while leaks := _leaks(fds, threads, children):
        if deadline is None:  # a collection may take longer than the grace on a busy machine: it counts from behind it
            gc.collect()
            deadline = time.monotonic() + _GRACE_S
        elif time.monotonic() > deadline:
            pytest.fail("left behind: " + "; ".join(sorted(leaks)), pytrace=False)
        else:
            gc.collect()
            time.sleep(0.02)


@pytest.fixture(params=START_METHODS)
def start_method(request: pytest.FixtureRequest) -> str:
    """Each way in which this platform starts worker processes, in turn."""
    method: str = request.param
    return method


@pytest.fixture(scope="session")
def _drawn() -> dict[str, bytes]:
    """The files of `photo_folder`: path below the folder -> content."""
    files: dict[str, bytes] = {}
    for label, name in enumerate(("cat", "dog", "zebra")):
        for i in range(4):
            image = images.photo(96 + 16 * i, 80, seed=10 * label + i)
            kind: Callable[..., bytes] = images.png if i == 3 else images.jpeg
            files[f"{name}/{i}.{kind.__name__.replace('jpeg', 'jpg')}"] = kind(image)
    return files


@pytest.fixture
def photo_folder(tmp_path: Path, _drawn: dict[str, bytes]) -> Path:
    """A folder of three class folders with four small images each: three JPEGs and a PNG."""
    root = tmp_path / "photos"
    for path, content in _drawn.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return root
