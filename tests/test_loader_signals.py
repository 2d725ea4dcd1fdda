"""Signals that a scheduler or a terminal sends to all processes of a job, and forks that end: workers pass them by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fastdata
from tests import samples

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are POSIX's")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return samples.plain_images(tmp_path_factory.mktemp("signals") / "d.lmdb")


def run(script: str, *arguments: str, folder: Path) -> str:
    """The output of a script that must end well, within a minute, saying nothing on stderr."""
    place = folder / "train.py"
    place.write_text(script)
    done = subprocess.run(
        [sys.executable, place, *arguments],
        env=os.environ | {"PYTHONPATH": os.getcwd()}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


PREEMPTED = """
import os, signal, sys, threading
import psutil
import fastdata

NAMES = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGXCPU")
came = []
me = psutil.Process()

def noted(number, _frame):
    came.append((signal.Signals(number).name, os.getpid()))

def tell_all(*names):
    for child in me.children(recursive=True):
        for name in names:
            try:
                child.send_signal(getattr(signal, name))
            except psutil.NoSuchProcess:
                pass

def tell_until(started):
    while not started.is_set():
        tell_all(*NAMES)

if __name__ == "__main__":
    path, method = sys.argv[1:]
    for name in NAMES:
        signal.signal(getattr(signal, name), noted)
    with fastdata.DataLoader(path, 4, num_workers=2, multiprocessing_context=method) as loader:
        started = threading.Event()
        sender = threading.Thread(target=tell_until, args=(started,))
        sender.start()
        batches = iter(loader)
        next(batches)
        started.set()
        sender.join()
        print(sum(1 for _ in batches), "more")
        batches = iter(loader)
        next(batches)
        tell_all(*NAMES)
        for name in NAMES:
            signal.raise_signal(getattr(signal, name))
        print(sum(1 for _ in batches), "more")
    print({pid for _, pid in came} == {os.getpid()}, sorted({name for name, _ in came}) == sorted(NAMES))
    with fastdata.DataLoader(path, 4, num_workers=1, multiprocessing_context=method) as loader:
        print(len(list(loader)), "later")
"""


def test_workers_pass_by_what_is_sent_to_all_processes(path: str, start_method: str, tmp_path: Path) -> None:
    """Also while they start; the program's handlers run in it alone, and it goes on as it likes."""
    assert run(PREEMPTED, path, start_method, folder=tmp_path).split("\n") == [
        "5 more", "5 more", "True True", "6 later", "",
    ]  # fmt: skip


FORKED = """
import os, sys
import fastdata

if __name__ == "__main__":
    path, method = sys.argv[1:]
    loader = fastdata.DataLoader(path, 4, num_workers=2, multiprocessing_context=method)
    batches = iter(loader)
    next(batches)
    for end in (lambda: sys.exit(0), lambda: 1 / 0, lambda: os._exit(0), lambda: [b for b in batches]):
        pid = os.fork()
        if pid == 0:
            sys.stderr = open(os.devnull, "w")
            end()
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
    print(sum(1 for _ in batches), "more")
    loader.close()
"""


def test_a_fork_leaves_the_workers_alone_however_it_ends(path: str, start_method: str, tmp_path: Path) -> None:
    assert run(FORKED, path, start_method, folder=tmp_path) == "0 1 0 1 5 more\n"


WAITED = """
import os, signal, sys
import multiprocessing
import fastdata

if __name__ == "__main__":
    path, method = sys.argv[1:]
    with fastdata.DataLoader(path, 4, num_workers=2, prefetch_factor=1, multiprocessing_context=method) as loader:
        batches = iter(loader)
        next(batches)
        workers = multiprocessing.active_children()
        os.kill(workers[0].pid, signal.SIGKILL)
        if method != "forkserver":
            print(os.waitpid(workers[0].pid, 0)[0] == workers[0].pid)
        try:
            list(batches)
        except fastdata.WorkerError as error:
            print(method, "another wait" in str(error), "signal 9" in str(error))
        print(len(list(loader)))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel waits for children, then
    with fastdata.DataLoader(path, 4, num_workers=1, multiprocessing_context=method) as loader:
        print(len(list(loader)))
    for worker in multiprocessing.active_children():
        print(worker)
"""


def test_a_worker_whose_end_another_has_waited_for_is_a_death(path: str, start_method: str, tmp_path: Path) -> None:
    told = ["forkserver False True"] if start_method == "forkserver" else ["True", f"{start_method} True False"]
    assert run(WAITED, path, start_method, folder=tmp_path).split("\n") == [*told, "6", "6", ""]


TERMINATED = """
import multiprocessing, sys
import fastdata

if __name__ == "__main__":
    path, method = sys.argv[1:]
    iterators = [iter(fastdata.DataLoader(path, 4, num_workers=1, multiprocessing_context=method)) for _ in "ab"]
    for iterator in iterators:
        next(iterator)
    one = multiprocessing.active_children()[0]
    one.terminate()
    one.join()
    print(one.exitcode < 0, flush=True)
    # and now the program ends, with iterators in use
"""


def test_who_ends_all_children_ends_the_workers_too(path: str, start_method: str, tmp_path: Path) -> None:
    """Programs do so by `terminate` and `join`, and Python itself when it ends: nobody waits for ever."""
    assert run(TERMINATED, path, start_method, folder=tmp_path) == "True\n"


INTERRUPTED = """
import os, signal, sys, threading, time
import fastdata
from tests import samples

if __name__ == "__main__":
    path, rounds = sys.argv[1], int(sys.argv[2])
    list(fastdata.DataLoader(path, 4, num_workers=2))  # what is imported only now could not bear an interrupt
    seen = 0
    for turn in range(rounds):
        sender = threading.Timer(0.0007 * turn, os.kill, (os.getpid(), signal.SIGINT))
        try:
            sender.start()
            while True:
                loader = fastdata.DataLoader(path, 4, num_workers=2, persistent_workers=False,
                                             multiprocessing_context="fork")
                for _ in loader:
                    break
                loader = None
        except KeyboardInterrupt:
            seen += 1
        sender.join()
    print(seen)
"""


def test_ctrl_c_comes_through_whatever_is_being_started_or_ended(path: str, tmp_path: Path) -> None:
    """Python ignores what is raised in its hooks around forks, and in finalizers."""
    assert run(INTERRUPTED, path, "40", folder=tmp_path) == "40\n"


def test_the_signals_that_a_thread_blocks_are_the_same_afterwards(path: str) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        with fastdata.DataLoader(path, 4, num_workers=1) as loader:
            next(iter(loader))
            assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before | {signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
