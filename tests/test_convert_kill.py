"""Conversions that are killed, interrupted, starved or bereft of a worker: nothing half-written ever looks whole."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import fastdata
from fastdata.converters.convert import convert
from fastdata.errors import FormatError
from fastdata.formats.index import INDEX_NAME

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals and limits are POSIX's")]

ROOT = Path(__file__).parent.parent
STOPPABLE = [sys.executable, "-m", "tests.stoppable"]
NAMES = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "out.tar", "shards": "out"}
WRITER = "fastdata.converters.writers:Writer."
INDEX = "fastdata.formats.index:IndexBuilder."
STAGING = "fastdata.converters.staging:Staging."
# Before: the first record, one in the middle, the index, the swap of names.
MOMENTS = [(WRITER + "write", 1), (WRITER + "write", 7), (INDEX + "columns", 1), (STAGING + "commit", 1)]
# An interrupted conversion has ended within this.
INTERRUPT_SECONDS = 5.0
DEADLINE = 60.0


def options_for(kind: str, **more: Any) -> dict[str, Any]:
    """What makes data sets of this kind, large enough to be stopped in the middle."""
    shards = {"format": "tar"} if kind == "shards" else {}
    return {"encode": "raw", "workers": 2, "shard_size": 60_000, **shards, **more}


@contextmanager
def stopped(src: Path, dst: Path, moment: tuple[str, int], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A conversion in a process of its own that waits at a moment; it is gone at the end, with its workers."""
    process = subprocess.Popen(
        [*STOPPABLE, moment[0], str(moment[1]), str(src), str(dst), json.dumps(options)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    workers: list[psutil.Process] = []
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "here\n", process.communicate()
            workers = psutil.Process(process.pid).children()
            yield process
        finally:
            process.kill()
    _, alive = psutil.wait_procs(workers, timeout=DEADLINE)
    assert not alive


def digest(path: Path) -> dict[str, str]:
    """Every file of a data set and its hash."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.is_file()}


def refuse_leftovers(folder: Path) -> None:
    """Whatever a killed run left cannot be read as a data set."""
    for path in [*folder.rglob("*"), folder]:
        if path.name in ("lock", INDEX_NAME) or path.suffix in (".mdb", ".json"):
            continue
        with pytest.raises((FormatError, OSError)):
            fastdata.open(path)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0].rpartition('.')[2]}-{moment[1]}")
@pytest.mark.parametrize("kind", NAMES)
def test_sigkill_leaves_nothing_that_can_be_read(
    photo_folder: Path, tmp_path: Path, kind: str, moment: tuple[str, int]
) -> None:
    dst = tmp_path / NAMES[kind]
    with stopped(photo_folder, dst, moment, **options_for(kind)) as process:
        process.kill()
        process.wait()
    assert not dst.exists()
    left = [path for path in tmp_path.iterdir() if path != photo_folder]
    assert [path.name for path in left] == [f".{NAMES[kind]}.fastdata"]
    if moment[0] != STAGING + "commit":  # before the swap of names the new data set is whole, beside its target
        refuse_leftovers(left[0])
    report = convert(photo_folder, dst, **options_for(kind))
    assert report.kept == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([NAMES[kind], photo_folder.name])
    again = tmp_path / "again" / NAMES[kind]
    again.parent.mkdir()
    convert(photo_folder, again, **options_for(kind))
    assert digest(dst) == digest(again)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0].rpartition('.')[2]}-{moment[1]}")
@pytest.mark.parametrize("kind", NAMES)
def test_sigkill_leaves_the_old_data_set_as_it_was(
    photo_folder: Path, tmp_path: Path, kind: str, moment: tuple[str, int]
) -> None:
    dst = tmp_path / NAMES[kind]
    convert(photo_folder, dst, **options_for(kind, resize=16))
    before = digest(dst)
    with stopped(photo_folder, dst, moment, **options_for(kind, overwrite=True)) as process:
        process.kill()
        process.wait()
    assert digest(dst) == before
    with fastdata.open(dst) as reader:
        assert len(reader) == 12
        assert not list(reader.verify())
    convert(photo_folder, dst, **options_for(kind, overwrite=True))
    assert digest(dst) != before


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0].rpartition('.')[2]}-{moment[1]}")
def test_an_interrupt_cleans_up_in_time(photo_folder: Path, tmp_path: Path, moment: tuple[str, int]) -> None:
    file = tmp_path / "r.json"
    with stopped(photo_folder, tmp_path / "out.lmdb", moment, **options_for("lmdb", report=str(file))) as process:
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
        seconds = time.monotonic() - begin
    assert "KeyboardInterrupt" in err
    assert seconds < INTERRUPT_SECONDS
    assert sorted(path.name for path in tmp_path.iterdir()) == [photo_folder.name, "r.json"]
    value = json.loads(file.read_bytes())
    assert (value["kept"], value["bytes_out"], value["error"]) == (0, 0, "ended by KeyboardInterrupt")


@pytest.mark.parametrize("limit", [1_000, 20_000, 150_000])
@pytest.mark.parametrize("kind", NAMES)
def test_a_full_disk_is_an_error_with_a_message_and_leaves_nothing(
    photo_folder: Path, tmp_path: Path, kind: str, limit: int
) -> None:
    options = options_for(kind, file_limit=limit, report=str(tmp_path / "r.json")) | {"shard_size": 10**6}
    run = subprocess.run(
        [*STOPPABLE, "", "0", str(photo_folder), str(tmp_path / NAMES[kind]), json.dumps(options)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    last = run.stderr.splitlines()[-1]
    assert last.startswith("fastdata.errors.ConvertError: "), run.stderr
    assert "cannot write" in last
    assert "File too large; free some space" in last
    assert f"limit of {limit:,} bytes a file" in last
    assert "Nothing was written" in last
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {photo_folder.name, "r.json"}
    if "r.json" in left:  # small enough for the limit
        assert "cannot write" in json.loads((tmp_path / "r.json").read_bytes())["error"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_dead_worker_is_an_error_at_once(photo_folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    for i in range(600):  # more than the pool's window (512 for two workers): some are left for each worker
        os.link(photo_folder / "cat" / "0.jpg", photo_folder / "cat" / f"more{i}.jpg")
    with stopped(photo_folder, tmp_path / "out.lmdb", MOMENTS[0], **options_for("lmdb")) as process:
        victim = psutil.Process(process.pid).children()[0]
        victim.send_signal(number)
        _, err = process.communicate("go on\n", timeout=DEADLINE)
    assert process.returncode == 1
    assert f"ended by signal {int(number)} ({number.name})" in err
    assert "while it had cat/" in err
    assert [path.name for path in tmp_path.iterdir()] == [photo_folder.name]


def test_workers_do_not_outlive_a_killed_parent(photo_folder: Path, tmp_path: Path) -> None:
    with stopped(photo_folder, tmp_path / "out.tar", MOMENTS[1], **options_for("tar")) as process:
        assert len(psutil.Process(process.pid).children()) == 2
        process.kill()  # `stopped` waits for the workers


def test_two_runs_to_the_same_place_do_not_meet(photo_folder: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out.tar"
    with stopped(photo_folder, dst, MOMENTS[1], **options_for("tar")) as process:
        with pytest.raises(fastdata.ConvertError, match="another run"):
            convert(photo_folder, dst, workers=1)
        out, err = process.communicate("go on\n", timeout=DEADLINE)
    assert (out, err) == ("done\n", "")
    with fastdata.open(dst) as reader:
        assert not list(reader.verify())
