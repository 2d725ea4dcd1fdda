"""Writers that are killed, or run out of disk, at many moments: what is left is refused, and the next run succeeds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata.converters import staging
from fastdata.errors import ConvertError, FormatError, OutputExistsError
from tests import samples

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")]

OLD = samples.RECORDS[:4]
# Moments at which a run is killed, of some thousand: a few while records are written, more while all is finished.
_WHILE_WRITING, _AT_THE_END = 4, 10


@pytest.fixture(params=samples.LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def in_child(work: Callable[[], Any]) -> tuple[int | None, Any]:
    """Run in a forked process; returns its exit code and what it returned or raised."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(work())
        except BaseException as error:
            sender.send(error)

    process = context.Process(target=run)
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        result = None
    process.join()
    receiver.close()
    return process.exitcode, result


def calls_of(work: Callable[[], object], stop_at: int = -1) -> list[str]:
    """Run `work`; returns the functions of C that our own code called, in order. At one of them the process dies."""
    seen: list[str] = []

    def trace(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and "converters" in frame.f_code.co_filename:
            if len(seen) == stop_at:
                os.kill(os.getpid(), signal.SIGKILL)
            seen.append(called.__name__)

    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def moments(calls: list[str]) -> list[int]:
    finish = max((place for place, name in enumerate(calls) if name == "crc32"), default=0)
    writing = range(0, finish, max(1, finish // _WHILE_WRITING))
    ending = range(finish, len(calls), max(1, (len(calls) - finish) // _AT_THE_END))
    renames = [place for place, name in enumerate(calls) if "rename" in name]
    last = range(max(len(calls) - 16, 0), len(calls), 2)  # the new data set is in its place, the old one goes
    after = [place + 1 for place in renames if place + 1 < len(calls)]
    return sorted({*writing, *ending, *renames, *after, *last})


def old_or_new(path: str, *, there_before: bool) -> str:
    try:
        found = samples.read(path)
    except FileNotFoundError:
        return "nothing"
    assert found in (samples.expected(), samples.expected(OLD) if there_before else None)
    return "new" if found == samples.expected() else "old"


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_killed_at_any_moment(tmp_path: Path, layout: str, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:  # an old system, or a file system that cannot
        monkeypatch.setattr(staging, "_rename_flagged", lambda first, second, flag: False)
    (tmp_path / "counted").mkdir()
    samples.write(tmp_path / "counted", layout, OLD)
    calls = calls_of(lambda: samples.write(tmp_path / "counted", layout, overwrite=True))
    states = set()
    for moment in moments(calls):
        folder = tmp_path / str(moment)
        folder.mkdir()
        path = samples.write(folder, layout, OLD)
        code, _ = in_child(lambda: calls_of(lambda: samples.write(folder, layout, overwrite=True), stop_at=moment))  # noqa: B023
        assert code == -signal.SIGKILL
        state = old_or_new(path, there_before=True)
        states.add(state)
        assert state != "nothing" or not exchange
        leftovers = folder / f".{os.path.basename(path)}.fastdata"
        if leftovers.exists():
            with pytest.raises(FormatError, match=r"did not finish|unfinished|left over"):
                fastdata.open(leftovers)
        again(folder, layout, put_back=state == "nothing")
    assert {"old", "new"} <= states
    assert ("nothing" in states) is not exchange


def again(folder: Path, layout: str, *, put_back: bool) -> None:
    """A run after a killed one: first one that may not overwrite, which must leave an old data set there."""
    path = samples.place(folder, layout)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(OutputExistsError):
            samples.write(folder, layout)
    assert [str(item.message) for item in caught if "was put back" in str(item.message)] == [
        f"an earlier run was killed while it replaced {path!r}; the old data set was put back there"
    ] * put_back
    if put_back:
        assert samples.read(path) == samples.expected(OLD)
    samples.write(folder, layout, overwrite=True)
    assert samples.read(samples.place(folder, layout)) == samples.expected()
    assert len(os.listdir(folder)) == 1


def test_killed_with_nothing_there_before(tmp_path: Path, layout: str) -> None:
    (tmp_path / "counted").mkdir()
    calls = calls_of(lambda: samples.write(tmp_path / "counted", layout))
    for moment in moments(calls)[::2]:
        folder = tmp_path / str(moment)
        folder.mkdir()
        code, _ = in_child(lambda: calls_of(lambda: samples.write(folder, layout), stop_at=moment))  # noqa: B023
        assert code == -signal.SIGKILL
        state = old_or_new(samples.place(folder, layout), there_before=False)
        for left in folder.glob(".*.fastdata/new*"):
            try:
                assert samples.read(str(left)) == samples.expected()  # killed just before it was moved to its place
            except (FormatError, FileNotFoundError) as error:
                refused = str(error)
                assert str(left) in refused
        samples.write(folder, layout, overwrite=state == "new")
        assert samples.read(samples.place(folder, layout)) == samples.expected()
        assert len(os.listdir(folder)) == 1


@pytest.mark.parametrize("limit", [0, 600, 5000, 30_000, 66_000, 70_000])
def test_a_full_disk_is_an_error_with_a_message(tmp_path: Path, layout: str, limit: int) -> None:
    resource = pytest.importorskip("resource")
    path = samples.write(tmp_path, layout, OLD)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for _ in range(3):
            samples.write(tmp_path, layout, samples.RECORDS * 1, overwrite=True, shard_size=1 << 20)

    code, error = in_child(work)
    assert code == 0
    if error is not None:
        assert isinstance(error, ConvertError), repr(error)
        assert str(error).startswith(f"cannot write {path!r}: ")
        assert "File too large; free some space" in str(error), error
        assert f"limit of {limit:,} bytes a file" in str(error)
        assert "The existing data set was not changed" in str(error)
        assert samples.read(path) == samples.expected(OLD)
    assert (error is None) == (samples.read(path) == samples.expected())
    assert limit >= 66_000 or error is not None
    assert os.listdir(tmp_path) == [os.path.basename(path)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for half a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_small_disk(small_disk: Path, layout: str) -> None:
    path = samples.write(small_disk, layout, OLD)
    records = [samples.record(number, 7000) for number in range(200)]
    with pytest.raises(
        ConvertError, match=r"cannot write .*No space left on device; free .*was not changed.* records\)"
    ):
        samples.write(small_disk, layout, records, overwrite=True)
    assert os.listdir(small_disk) == [os.path.basename(path)]
    assert samples.read(path) == samples.expected(OLD)
    samples.write(small_disk, layout, records[:20], overwrite=True)
    assert samples.read(path) == samples.expected(records[:20])
