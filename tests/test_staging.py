"""Staging: one step from nothing, or from the old data set, to the new one; nobody's files are lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import fastdata
from fastdata import Record
from fastdata.converters import staging
from fastdata.converters.staging import Staging
from fastdata.errors import ConvertError, OutputExistsError

SWAPS = pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data"


def make(path: Path | str, text: str) -> None:
    os.makedirs(path)
    Path(path, "manifest.json").write_text(text)


def without_exchange(monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(staging, "_rename_flagged", lambda first, second, flag: False)


@SWAPS
@pytest.mark.parametrize("kind", ["folder", "file", "link", "nothing"])
def test_moves_the_new_to_its_target(target: Path, kind: str, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    without_exchange(monkeypatch, exchange)
    elsewhere = target.parent / "elsewhere"
    if kind == "folder":
        make(target, "old")
    elif kind == "file":
        target.write_text("old")
    elif kind == "link":
        make(elsewhere, "linked")
        target.symlink_to(elsewhere)
    with Staging(str(target), overwrite=True) as building:
        make(building.new, "new")
        assert os.path.lexists(target) == (kind != "nothing")
        building.commit()
    assert (target / "manifest.json").read_text() == "new"
    assert not target.is_symlink()
    left = {target.name} | ({elsewhere.name} if kind == "link" else set())
    assert set(os.listdir(target.parent)) == left
    if kind == "link":  # the link was replaced, not what it led to
        assert (elsewhere / "manifest.json").read_text() == "linked"


@SWAPS
def test_leaving_without_commit_changes_nothing(target: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    without_exchange(monkeypatch, exchange)
    make(target, "old")
    with Staging(str(target), overwrite=True) as building:
        make(building.new, "new")
    assert (target / "manifest.json").read_text() == "old"
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_swap_that_fails_half_way_puts_the_old_back(
    target: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_exchange(monkeypatch, False)
    make(target, "old")
    rename = os.rename

    def fails(first: str, second: str) -> None:
        if os.path.basename(first) == "new":
            raise error
        rename(first, second)

    with pytest.raises(type(error)), Staging(str(target), overwrite=True) as building:  # noqa: PT012
        make(building.new, "new")
        monkeypatch.setattr(os, "rename", fails)
        building.commit()
    assert (target / "manifest.json").read_text() == "old"
    assert os.listdir(target.parent) == [target.name]


def test_an_interrupted_replacement_is_put_back_and_named(target: Path) -> None:
    make(target.parent / ".data.fastdata" / "old", "old")
    make(target.parent / ".data.fastdata" / "new", "half")
    with (
        pytest.warns(UserWarning, match=r"killed while it replaced .*data.*put back"),
        pytest.raises(OutputExistsError, match="overwrite"),
    ):
        Staging(str(target))
    assert (target / "manifest.json").read_text() == "old"
    assert os.listdir(target.parent) == [target.name]


def test_the_warning_as_an_error_loses_nothing(target: Path) -> None:
    make(target.parent / ".data.fastdata" / "old", "old")
    with pytest.raises(UserWarning):
        Staging(str(target))
    assert (target / "manifest.json").read_text() == "old"
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.parametrize("beside", [None, "manifest.json", "backup.tar"])
def test_a_folder_of_other_files_is_never_replaced(target: Path, beside: str | None) -> None:
    target.mkdir()
    (target / "holiday.jpg").write_bytes(b"precious")
    if beside is not None:
        (target / beside).write_bytes(b"")
    with pytest.raises(OutputExistsError, match="holds files which are not part of a data set"):
        Staging(str(target), overwrite=True)
    assert sorted(os.listdir(target)) == sorted(filter(None, ["holiday.jpg", beside]))
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_pipe_is_never_replaced(target: Path, overwrite: bool) -> None:
    os.mkfifo(target)
    with pytest.raises(OutputExistsError, match=r"not a regular file but a pipe, socket or device; it was not changed"):
        Staging(str(target), overwrite=overwrite)
    assert target.is_fifo()


def test_an_empty_folder_may_be_replaced(target: Path) -> None:
    target.mkdir()
    with Staging(str(target), overwrite=True) as building:
        make(building.new, "new")
        building.commit()
    assert os.listdir(target) == ["manifest.json"]


def test_a_link_in_place_of_the_hidden_folder_is_refused(target: Path) -> None:
    victim = target.parent / "victim"
    make(victim, "precious")
    (target.parent / ".data.fastdata").symlink_to(victim)
    with pytest.raises(ConvertError, match="is a link"):
        Staging(str(target))
    assert os.listdir(victim) == ["manifest.json"]


def test_a_second_run_is_refused_and_leaves_the_first_alone(target: Path) -> None:
    with Staging(str(target)) as building:
        make(building.new, "first")
        with pytest.raises(ConvertError, match="another run is writing"):
            Staging(str(target), overwrite=True)
        building.commit()
    assert (target / "manifest.json").read_text() == "first"


@pytest.mark.parametrize("path", ["/", "/proc", "file/data", "n" * 300])
def test_paths_that_cannot_be_written(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConvertError, match="cannot"):
        Staging(path if path.startswith("/") else str(tmp_path / path), overwrite=True)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ""])
def test_a_name_that_leaves_no_room_is_refused_before_the_work(photo_folder: Path, tmp_path: Path, suffix: str) -> None:
    most = os.pathconf(tmp_path, "PC_NAME_MAX") - len("-000000.tar")
    chosen = None if suffix else "tar"
    longest = tmp_path / ("n" * (most - len(suffix)) + suffix)
    with fastdata.create(longest, format=chosen) as writer:
        writer.write(Record("a", {"jpg": b"x"}))
    assert sorted(os.listdir(tmp_path)) == [longest.name, "photos"]
    too_long = tmp_path / f"n{longest.name}"
    calls: tuple[Callable[[], object], ...] = (
        lambda: fastdata.convert(photo_folder, too_long, format=chosen),
        lambda: fastdata.create(too_long, format=chosen),
    )
    for call in calls:
        with pytest.raises(ConvertError, match=f"a name of {most + 1} bytes is too long.*at most {most} bytes"):
            call()
    assert len(os.listdir(tmp_path)) == 2


def test_a_relative_place_does_not_move_with_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with Staging("data/") as building:
        monkeypatch.chdir(tmp_path / "other")
        make(building.new, "new")
        building.commit()
    assert sorted(os.listdir(tmp_path)) == ["data", "other"]
