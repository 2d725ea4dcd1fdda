"""Places with odd names, reports in places that are no files, and standard streams that somebody closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import fastdata
from fastdata.errors import OptionError
from tests import images, samples

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and links")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.png").write_bytes(images.png(images.photo(8, 8)))
    return folder


def command(source: Path, *options: str, redirect: str) -> subprocess.CompletedProcess[bytes]:
    """`fastdata convert` in a shell, which can close streams."""
    words = [sys.executable, "-m", "fastdata", "convert", str(source), str(source.parent / "out.tar"), *options]
    return subprocess.run(["sh", "-c", f'"$@" {redirect}', "sh", *words], capture_output=True, check=False, timeout=60)


def test_a_report_into_a_pipe_leaves_the_pipe(source: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    fastdata.convert(source, tmp_path / "out.tar", report=pipe)
    reader.join(30)
    assert json.loads(got[0])["kept"] == 1
    assert pipe.is_fifo()


def test_a_report_through_a_link_leaves_the_link(source: Path, tmp_path: Path) -> None:
    link, real = tmp_path / "link.json", tmp_path / "real.json"
    link.symlink_to(real)
    fastdata.convert(source, tmp_path / "out.tar", report=link)
    assert link.is_symlink()
    assert json.loads(real.read_bytes())["kept"] == 1


def test_a_report_on_standard_output_comes_before_the_summary(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    done = command(source, "--report", "/dev/fd/1", redirect=f"> {out}")
    assert done.returncode == 0
    text = out.read_text()
    report, end = json.JSONDecoder().raw_decode(text)
    assert report["kept"] == 1
    assert text[end:].strip().startswith("kept")


def test_a_report_on_a_descriptor_that_is_not_open_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the descriptor 987 is not open"):
        fastdata.convert(source, tmp_path / "out.tar", report="/dev/fd/987")
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.slow
@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(source: Path, tmp_path: Path, redirect: str) -> None:
    done = command(source, redirect=redirect)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    with fastdata.open(tmp_path / "out.tar") as reader:
        assert len(reader) == 1


ODD = os.fsdecode(b"d\xff")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
@pytest.mark.parametrize("place", [f"{ODD}.lmdb", f"{ODD}/x.lmdb", f"{ODD}.h5", f"{ODD}.tar", f"{ODD}/{ODD}"])
def test_a_destination_whose_name_is_no_text(source: Path, tmp_path: Path, place: str) -> None:
    form = None if place.endswith((".lmdb", ".h5", ".tar")) else "tar"
    for overwrite in (False, True):
        fastdata.convert(source, tmp_path / place, format=form, overwrite=overwrite, workers=1)
    with fastdata.open(tmp_path / place) as reader:
        assert len(reader) == 1
        assert list(reader.verify()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ü.lmdb", "ü.h5", "ü.tar", "ü"])
def test_the_locale_changes_no_byte(tmp_path: Path, name: str) -> None:
    for path in ("cé/ü.png", "日本/1.png", os.fsdecode(b"cz/\xff.png")):
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_bytes(images.png(images.photo(8, 8)))
    form = [] if "." in name else ["--format", "tar"]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    made = []
    for environment in ({}, ascii_only):
        words = [sys.executable, "-m", "fastdata", "convert", "src", name, "--overwrite", "--quiet", *form]
        done = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.getcwd(), **environment}, capture_output=True
        )
        assert (done.returncode, done.stderr) == (0, b"")
        made.append(samples.files(tmp_path / name))
    assert made[0] == made[1]
    for path in ("src", name):
        words = [sys.executable, "-m", "fastdata", "info", path]
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), **ascii_only}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert rb"c\xe9" in done.stdout
