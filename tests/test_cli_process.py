"""The command as a process among others: signals, readers that go away, full disks, narrow encodings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fastdata.cli import terminal
from tests import images
from tests.command import pack, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough large images that a conversion is never done before a signal comes."""
    root = tmp_path_factory.mktemp("many")
    blob = images.jpeg(images.photo(2000, 1500), quality=95)
    for number in range(400):
        (root / f"{number:03d}.jpg").write_bytes(blob) if number == 0 else os.link(
            root / "000.jpg", root / f"{number:03d}.jpg"
        )
    return root


def _start(*arguments: str | os.PathLike[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fastdata", *map(os.fspath, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize(
    ("number", "everybody", "code", "word"),
    [
        (signal.SIGINT, True, 130, "interrupted"),  # Ctrl-C: the whole process group gets it
        (signal.SIGINT, False, 130, "interrupted"),
        (signal.SIGTERM, False, 143, "terminated"),
        (signal.SIGHUP, False, 129, "ended by SIGHUP"),  # the terminal was closed, the connection lost
        (signal.SIGQUIT, False, 131, "ended by SIGQUIT"),
        (signal.SIGUSR1, False, 138, "ended by SIGUSR1"),  # a scheduler's first warning
        (signal.SIGXCPU, False, 152, "ended by SIGXCPU"),
    ],
)
def test_signals_end_a_conversion_cleanly(
    many: Path, tmp_path: Path, number: signal.Signals, everybody: bool, code: int, word: str
) -> None:
    with _start("convert", many, tmp_path / "out.lmdb", "--resize", "64", "--workers", "2") as process:
        _wait_for(lambda: bool(os.listdir(tmp_path)), process)
        begin = time.monotonic()
        (os.killpg if everybody else os.kill)(process.pid, number)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - begin < 30
    assert (process.returncode, out) == (code, "")
    lines = [line for line in err.splitlines() if not line.startswith("convert: ")]  # progress in plain lines
    assert lines == [word]
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_a_hang_up_that_comes_twice_ends_it_once(many: Path, tmp_path: Path) -> None:
    """The terminal sends one, and its shell another."""
    report = tmp_path / "r.json"
    with _start("convert", many, tmp_path / "out.h5", "--quiet", "--workers", "2", "--report", report) as process:
        _wait_for(lambda: bool(os.listdir(tmp_path)), process)
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (129, "", "ended by SIGHUP\n")
    assert os.listdir(tmp_path) == ["r.json"]
    assert json.loads(report.read_bytes())["error"] == "ended by SIGHUP"


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_a_signal_that_the_parent_ignores_stays_ignored(photo_folder: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from fastdata import cli\n"
        "def run(argv):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return 0\n"
        "cli._run = run\n"
        "sys.exit(cli.main([]))\n"
    )
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_whose_exception_python_ignores_comes_again(number: signal.Signals, code: int) -> None:
    script = (
        "import signal, sys, time, weakref\n"
        "from fastdata import cli\n"
        "def run(argv):\n"
        "    thing = type('Thing', (), {})()\n"
        "    watch = weakref.ref(thing, lambda _: signal.raise_signal(int(argv[0])))\n"
        "    del thing\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "cli._run = run\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", script, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)


@pytest.mark.skipif(os.name != "posix", reason="pipes that break with EPIPE are POSIX's")
def test_a_reader_that_goes_away_is_not_an_error(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    for arguments in (["info", packed], ["info", packed, "--json"], ["verify", packed, "--quiet"], ["--help"]):
        with _start(*arguments) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.close()
            err = process.stderr.read()
            process.wait(timeout=60)
        assert err == ""
        assert process.returncode in (0, 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_an_error(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fastdata", "info", str(packed)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device\n"


def test_output_in_an_encoding_without_our_letters(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "fastdata", "info", str(packed)]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_the_handlers_of_a_calling_program_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run("info", tmp_path / "missing")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_printable() -> None:
    assert terminal.printable("plain Überraschung 猫") == "plain Überraschung 猫"
    assert terminal.printable("a\nb\x1b\u202e\udc80") == r"a\nb\x1b\u202e\x80"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (30_000, "30.0 kB"), (999_600, "1.00 MB"), (256_000_000, "256 MB")],
)
def test_size_text(count: int, text: str) -> None:
    assert terminal.size_text(count) == text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_report_that_cannot_be_written_is_an_error(photo_folder: Path, tmp_path: Path) -> None:
    with _start("convert", photo_folder, tmp_path / "out.lmdb", "--quiet", "--report", "/dev/full") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "report /dev/full could not be written" in err
    assert (tmp_path / "out.lmdb").is_dir()
