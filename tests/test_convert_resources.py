"""A machine that runs out of something ends a conversion: no file is rejected for it, and nothing is written."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

import fastdata
from fastdata.converters import convert as convert_module
from fastdata.converters.convert import convert
from fastdata.errors import ConvertError, OutOfMemoryError, ResourceError
from tests import images
from tests.command import run

TARGETS = "tests.pool_targets:"
needs_limits = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux has them")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("files", r"0\.png: Too many open files: .*`ulimit -n`.*fewer --workers\. Nothing was written"),
        ("memory", r"0\.png: out of memory.*fewer --workers .*--max-pixels rejects large images.*Nothing was written"),
    ],
    ids=["files", "memory"],
)
@needs_limits
def test_it_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, message: str) -> None:
    monkeypatch.setattr(convert_module, "_RECODER", f"{TARGETS}out_of_{what}")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "0.png").write_bytes(images.png(images.photo(3000, 3000)))
    with pytest.raises(ConvertError, match=message):
        convert(tmp_path / "photos", tmp_path / "out.lmdb", workers=1, report=tmp_path / "r.json")
    assert sorted(os.listdir(tmp_path)) == ["photos", "r.json"]
    code, out, err = run("convert", tmp_path / "photos", tmp_path / "out.lmdb", "--quiet", "--workers", "1")
    assert (code, out, len(err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(24, "Too many open files"), ResourceError),
        (OSError(23, "Too many open files in system"), ResourceError),
        (OSError(12, "Cannot allocate memory"), OutOfMemoryError),
        (OSError(28, "No space left on device"), ResourceError),
        (MemoryError(), OutOfMemoryError),
    ],
)
def test_no_file_is_rejected_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    from fastdata.converters.options import RecodeOptions
    from fastdata.converters.recode import file_recoder
    from fastdata.formats.folder import ImageRef

    def fails(_: str) -> bytes:
        raise error

    (tmp_path / "a.png").write_bytes(b"x")
    monkeypatch.setattr("fastdata.formats.folder.read_file", fails)
    with pytest.raises(fastdata.ResourceError, match=r"^a\.png: .* says nothing about the data") as caught:
        file_recoder(os.fsencode(tmp_path), RecodeOptions())(ImageRef("a", "a.png", -1))
    assert type(caught.value) is kind


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES])
def test_a_file_that_the_disk_does_not_give_is_rejected_by_name(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Other files of the same disk may be whole."""
    monkeypatch.setattr(convert_module, "_RECODER", f"{TARGETS}bad_sector")
    monkeypatch.setenv("TEST_ERRNO", str(number))
    report = convert(photo_folder, tmp_path / "out.lmdb", workers=1)
    assert [(note.path, note.reason) for note in report.rejected] == [
        ("cat/0.jpg", f"cannot be read: {os.strerror(number)}")
    ]
    assert report.kept > 0


def test_what_a_worker_wrote_before_it_died_stands_on_lines_of_its_own(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "_RECODER", f"{TARGETS}unloadable")
    code, out, err = run("convert", photo_folder, tmp_path / "out.lmdb", "--quiet", "--workers", "1")
    lines = err.splitlines()
    assert (code, out) == (1, "")
    assert lines[0].startswith("error: a conversion worker ended with exit code 1")
    assert lines[0].endswith("Nothing was written. The end of its log:")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "RuntimeError: this library is broken"
