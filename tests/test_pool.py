"""The pool: order, bounds, light workers, and an end that always comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdata.converters import memory_limit
from fastdata.converters import pool as pool_module
from fastdata.converters.memory_limit import LargeImageLimit
from fastdata.converters.options import RecodeOptions
from fastdata.converters.pool import Pool
from fastdata.cpus import available_cpus
from fastdata.errors import ConvertError
from fastdata.processes import context, fresh

TARGETS = "tests.pool_targets:"
# How long an event that is bound to come may take before the test calls it a failure.
DEADLINE = 20.0


def wait_for(condition: Callable[[], Any]) -> Any:
    """Poll until the condition holds; how long it takes is no matter."""
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.005)
    return value


def answers(target: str, items: Iterable[Any], chunk: int = 8) -> list[Any]:
    """What two workers make of the items."""
    with Pool(2, TARGETS + target) as pool:
        pool.start(2)
        return [value for value, _, _ in pool.map(items, chunk=chunk)]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("chunk", [1, 8])
def test_answers_come_in_order(workers: int, chunk: int) -> None:
    with Pool(workers, TARGETS + "sized") as pool:
        pool.start(workers)
        sizes = [(7 * i) % 50_000 for i in range(300)]
        assert [(value, size) for value, size, _ in pool.map(sizes, chunk=chunk)] == [(s, s) for s in sizes]


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(0, 60), st.integers(1, 9))
def test_any_number_of_items_and_any_chunk(count: int, chunk: int) -> None:
    assert answers("echo", range(count), chunk) == list(range(count))


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_workers_ignore_the_signals_that_are_sent_to_all_processes() -> None:
    """From their first moment on: they are the program's to answer."""
    with Pool(1, TARGETS + "echo") as pool:
        pool.start(1)
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]
        for number in numbers:
            os.kill(pool._workers[0].process.pid, number)
        values = []
        for value, _, log in pool.map(range(50)):
            os.kill(pool._workers[0].process.pid, numbers[value % 4])
            values.append((value, log))
    assert values == [(value, "") for value in range(50)]


def test_no_items_start_no_more_than_one_worker() -> None:
    with Pool(3, TARGETS + "echo") as pool:
        assert list(pool.map([])) == []
        assert pool.size == 1


def test_a_slow_item_is_overtaken_up_to_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_WINDOW_ITEMS", 10)
    taken = []

    def items() -> Iterator[Any]:
        for item in ["slow", *range(100)]:
            taken.append(item)
            if len(taken) == 20:  # two workers' window: all that is let in before the slow item is done
                (tmp_path / "slow").touch()
            yield item

    with Pool(2, TARGETS + "gated", [str(tmp_path)]) as pool:
        pool.start(2)
        came = pool.map(items(), chunk=1)
        assert next(came)[0] == "slow"
        assert len(taken) >= 20  # others were given out while the slow one was at work
        assert [value for value, _, _ in came] == list(range(100))


def test_early_answers_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_WINDOW_BYTES", 1_000_000)
    highest = 0
    receive = pool_module._Window.receive

    def watched(self: Any) -> None:
        nonlocal highest
        receive(self)
        highest = max(highest, self.held)

    monkeypatch.setattr(pool_module._Window, "receive", watched)
    sizes = [300_000] * 60
    with Pool(3, TARGETS + "sized") as pool:
        pool.start(3)
        assert [value for value, _, _ in pool.map(sizes, chunk=2)] == sizes
    # the window, and one message from each of the three
    assert highest <= 1_000_000 + 3 * (2 * 300_000)


def test_workers_start_without_the_main_module_and_without_torch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, json\n"
        "print('imported', __name__)\n"
        "from fastdata.converters.pool import Pool\n"
        "with Pool(1, 'tests.pool_targets:surroundings') as pool:\n"
        "    value = next(pool.map([0]))[0]\n"
        "print(json.dumps(value))\n"
    )
    root = str(Path(__file__).parent.parent)
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    lines = run.stdout.splitlines()
    assert lines[0] == "imported __main__"
    assert len(lines) == 2, "a worker imported the script"
    assert run.stderr == ""
    import json

    around = json.loads(lines[1])
    assert not {"torch", "cv2", "numpy", "rich", "typer"} & set(around["modules"])
    assert around["session"] == around["pid"]  # Ctrl-C on the terminal is not for it
    assert root in around["path"]


def test_workers_use_one_thread_unless_the_environment_sets_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCV always uses one."""
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENCV_FOR_THREADS_NUM", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with Pool(1, TARGETS + "threads", (os.fsencode(tmp_path), RecodeOptions())) as pool:
        assert [value for value, _, _ in pool.map(names)] == [(1, "5"), (1, "1"), (1, "1")]


def test_a_file_of_the_working_directory_does_not_hide_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise RuntimeError('this is not the standard library')")
    monkeypatch.chdir(tmp_path)
    with Pool(1, TARGETS + "echo") as pool:
        assert [value for value, _, _ in pool.map([1, 2])] == [1, 2]


def test_what_is_written_comes_with_its_item_and_not_to_our_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with Pool(1, TARGETS + "lame") as pool:
        came = [(value, log) for value, _, log in pool.map(["a", "talk", "b", "talk"], chunk=4)]
    assert came == [("a", ""), ("talk", "bad data; and more"), ("b", ""), ("talk", "bad data; and more")]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("exit", r"ended with exit code 7 while it had exit, after"),
        ("segv", r"(?s)signal 11 \(SIGSEGV\) .* while it had segv, after.*The end of its log:\n.*pool_targets\.py"),
        ("kill", r"signal 9 \(SIGKILL\) .*memory ran out: use fewer --workers.* while it had kill, after"),
        ("raise", r"(?s)raise: unexpected ZeroDivisionError: no such image.*pool_targets\.py"),
    ],
)
def test_a_dead_worker_is_an_error_at_once(way: str, message: str) -> None:
    with pytest.raises(ConvertError, match=message):
        answers("lame", ["before", "fine", way, "after"], chunk=2)


def test_a_worker_that_cannot_start_reports_why() -> None:
    with pytest.raises(ConvertError, match=r"(?s)exit code 1.*this library is broken"):
        answers("unloadable", range(100))


def test_an_exception_in_the_consumer_ends_the_workers(tmp_path: Path) -> None:
    pids: list[int] = []

    def consume() -> None:
        with Pool(2, TARGETS + "busy", [str(tmp_path)]) as pool:
            pool.start(2)
            pids.extend(worker.process.pid for worker in pool._workers)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom fastdata.converters.pool import Pool\n"
        "with Pool(2, 'tests.pool_targets:busy', [sys.argv[1]]) as pool:\n"
        "    pool.start(2)\n    list(pool.map(range(50)))\n"
    )
    root = str(Path(__file__).parent.parent)
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": root})
    try:
        files = wait_for(lambda: len(found := list(tmp_path.glob("pid-*[0-9]"))) == 2 and found)
        workers = [psutil.Process(int(file.read_text())) for file in files]
    finally:
        parent.kill()
        parent.wait()
    gone, alive = psutil.wait_procs(workers, timeout=DEADLINE)
    assert len(gone) == 2
    assert not alive


def test_available_cpus_keeps_to_the_affinity() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        assert available_cpus() <= len(os.sched_getaffinity(0))


def test_the_start_where_descriptors_cannot_be_inherited(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(fresh, "start", lambda target, _: context.start(spawn, target, (), captured=True))
    with Pool(2, TARGETS + "sized") as pool:
        pool.start(2)
        assert [value for value, _, _ in pool.map(range(40))] == list(range(40))
    with pytest.raises(ConvertError, match="SIGKILL"):
        answers("lame", ["kill"])
    with Pool(1, TARGETS + "lame") as pool:
        assert [log for _, _, log in pool.map(["talk", "a"])] == ["bad data; and more", ""]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("free", "most"), [(0, 1), (14 << 30, 2), (1 << 50, 3)])
def test_few_large_images_are_in_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, most: int
) -> None:
    monkeypatch.setattr(memory_limit, "free_memory", lambda: free)
    with Pool(3, TARGETS + "large", (str(tmp_path),), max_pixels=178_956_970) as pool:
        pool.start(3)
        counts = [value for value, _, _ in pool.map([64_000_000] * 300, chunk=1)]
        assert len(counts) == 300
        assert max(counts) <= most
        assert len(os.read(pool._limit.descriptors[0], 100)) == most  # every token came back


def test_small_images_are_not_limited() -> None:
    assert memory_limit.limit_for(3, 1_000_000) == LargeImageLimit()
    with LargeImageLimit((-1, -1)).hold(1000), LargeImageLimit().hold(10**9):
        pass
