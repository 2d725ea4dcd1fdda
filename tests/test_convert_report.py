"""What a conversion reports: the report, its file, warnings, progress."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata.converters.convert import convert
from fastdata.converters.report import ConvertReport, Note, write_report
from fastdata.progress import progress_bar
from tests import images
from tests.test_convert import every_kind, put, run


def test_an_empty_class_keeps_its_number_with_a_warning(photo_folder: Path, tmp_path: Path) -> None:
    (photo_folder / "crow").mkdir()
    report = run(photo_folder, tmp_path / "out.tar")
    assert report.classes == ["cat", "crow", "dog", "zebra"]
    assert [note.path for note in report.warnings if "class" in note.reason] == ["crow"]
    with fastdata.open(tmp_path / "out.tar") as reader:
        assert reader.labels.tolist() == [0] * 4 + [2] * 4 + [3] * 4


def test_a_class_whose_images_were_all_rejected_keeps_its_number_with_a_warning(
    photo_folder: Path, tmp_path: Path
) -> None:
    put(photo_folder, {"crow/1.jpg": b"no image", "crow/2.jpg": b""})
    report = run(photo_folder, tmp_path / "out.tar")
    assert report.classes == ["cat", "crow", "dog", "zebra"]
    assert Note("crow", "all images of this class were rejected") in report.warnings


def test_names_that_are_not_text_end_in_strict_json(tmp_path: Path) -> None:
    src = tmp_path / "src"
    names = [b"caf\xe9", b"new\nline", "snow☃".encode(), b'quote"', b"back\\slash"]
    for name in names:
        folder = os.path.join(os.fsencode(src), name)
        os.makedirs(folder)
        with open(os.path.join(folder, b"\xff\xfe.jpg"), "wb") as file:
            file.write(images.jpeg(images.photo(9, 9)))
        with open(os.path.join(folder, b"bad\xff.png"), "wb") as file:
            file.write(b"nothing")
    report = run(src, tmp_path / "out.lmdb", report=tmp_path / "r.json")
    assert (report.kept, len(report.rejected)) == (5, 5)
    text = (tmp_path / "r.json").read_bytes()
    value = json.loads(text)
    json.dumps(value).encode("ascii")
    text.decode("ascii")
    assert "\\ud8" not in text.decode().lower().replace("\\ud83", "")
    for item in (*value["classes"], *(note["path"] for note in value["rejected"])):
        item.encode("utf-8")  # no lone surrogate
    assert "caf\\xe9/bad\\xff.png" in {note["path"] for note in value["rejected"]}
    with fastdata.open(tmp_path / "out.lmdb") as reader:
        assert {os.fsencode(path).split(b"/")[0] for path in reader.paths} == set(names)


def test_the_report_file_holds_what_the_report_holds(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text("an older report")
    report = run(every_kind(tmp_path / "kinds"), tmp_path / "out.tar", report=file)
    value = json.loads(file.read_bytes())
    assert value["rejected"] == [{"path": note.path, "reason": note.reason} for note in report.rejected]
    assert {name: value[name] for name in ("kept", "seconds", "bytes_in", "bytes_out", "classes", "error")} == {
        name: getattr(report, name) for name in ("kept", "seconds", "bytes_in", "bytes_out", "classes", "error")
    }
    assert report.rejected[0]["path"] == report.rejected[0].path
    assert [f.name for f in tmp_path.iterdir() if "report" in f.name] == []


def test_a_report_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="No space"):
        write_report(ConvertReport(rejected=[Note("a", "b")]), str(tmp_path / "r.json"))
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_in_the_end_is_an_error_and_the_data_are_whole(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fastdata.converters.convert.write_report", full)
    report = run(photo_folder, tmp_path / "out.tar", encode="keep", report=tmp_path / "r.json")
    assert report.kept == 12
    assert "No space left on device" in report.error
    assert len(fastdata.open(tmp_path / "out.tar")) == 12


def test_lossless_sources_that_become_lossy_are_one_warning_that_counts(photo_folder: Path, tmp_path: Path) -> None:
    report = run(photo_folder, tmp_path / "out.tar")
    assert [(note.path, note.reason.partition(" were")[0]) for note in report.warnings] == [
        (".", "3 lossless files (3 png)")
    ]
    assert run(photo_folder, tmp_path / "keep.tar", encode="keep").warnings == []


def test_damage_that_the_decoder_reports_is_a_warning_and_not_on_our_stderr(
    photo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = images.jpeg(images.photo(200, 200, 5))
    (photo_folder / "cat" / "harm.jpg").write_bytes(data[:-2] + b"\x12\x34" * 20 + data[-2:])
    report = run(photo_folder, tmp_path / "out.tar")
    assert report.kept == 13
    reasons = [note.reason for note in report.warnings if note.path == "cat/harm.jpg"]
    assert reasons == ["the decoder says: Corrupt JPEG data: 37 extraneous bytes before marker 0xd9"]
    assert capfd.readouterr() == ("", "")


def test_progress_shows_plainly_what_happened(
    photo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    convert(photo_folder, tmp_path / "out.tar", workers=1, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("convert: 12 of 12 images, ")
    assert "images/s" in err
    convert(photo_folder, tmp_path / "silent.tar", workers=1)
    with progress_bar(3, "nothing") as bar:
        bar.advance(3)
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    code = (
        "from fastdata.progress import progress_bar\n"
        "with progress_bar(50, 'convert', shown=True) as bar:\n    bar.advance(50)\n"
    )
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", code], stderr=theirs, check=True, cwd=Path(__file__).parent.parent,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )  # fmt: skip
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "convert" in shown
    assert "50 of 50" in shown


def test_a_closed_terminal_does_not_end_the_work() -> None:
    pty = pytest.importorskip("pty")
    code = (
        "import sys\nfrom fastdata.progress import progress_bar\n"
        "with progress_bar(3, 'convert', shown=True) as bar:\n"
        "    sys.__stdout__.write('begun\\n')\n    sys.__stdout__.flush()\n    sys.stdin.readline()\n"
        "    bar._due = 0.0\n    bar.advance(3)\n"
        "sys.stdout.write(str(bar.done))\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, text=True,
        env={**os.environ, "TERM": "xterm"}, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        os.close(theirs)
        os.close(ours)
        out, _ = process.communicate("go on\n", timeout=60)
    assert out == "3"
