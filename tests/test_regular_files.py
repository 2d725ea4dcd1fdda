"""Only regular files are opened: a pipe, device or socket, or a link to one, is refused at once, never waited for."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import lmdb
import pytest

import fastdata
from fastdata.errors import FormatError
from fastdata.formats import opening
from fastdata.manifest import MANIFEST_NAME
from tests import samples
from tests.command import run

Maker = Callable[[Path], None]


@pytest.fixture(params=["pipe", "link to a pipe", "socket", "device"])
def put(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    """Puts something that is not a regular file at a path."""
    with ExitStack() as ends:

        def make(path: Path) -> None:
            if request.param == "pipe":
                os.mkfifo(path)
            elif request.param == "link to a pipe":
                os.mkfifo(tmp_path / "elsewhere")
                path.symlink_to(tmp_path / "elsewhere")
            elif request.param == "device":
                path.symlink_to("/dev/zero")
            else:
                listener = ends.enter_context(socket.socket(socket.AF_UNIX))
                before = os.open(".", os.O_RDONLY)
                ends.callback(os.close, before)
                os.chdir(path.parent)  # the path of a socket may have 107 bytes only
                listener.bind(path.name)
                os.fchdir(before)

        yield make


def refused(path: object) -> None:
    with pytest.raises(FormatError, match=r"not a regular file \(a (pipe|socket|device)\).*copy"):
        fastdata.open(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["p.tar", "p.h5", "p", "p.lmdb"])
def test_a_path_itself(tmp_path: Path, put: Maker, name: str) -> None:
    put(tmp_path / name)
    refused(tmp_path / name)
    refused([tmp_path / name])
    for command in ("info", "verify"):
        code, out, err = run(command, tmp_path / name)
        assert (code, out) == (1, "")
        assert "not a regular file" in err


@pytest.mark.parametrize("name", ["a.tar", "data.mdb", MANIFEST_NAME])
def test_in_a_folder_that_others_made(tmp_path: Path, put: Maker, name: str) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    put(folder / name)
    refused(folder)
    if name == "a.tar":
        refused(f"{folder}/*.tar")


@pytest.mark.parametrize("layout", ["lmdb", "shards"])
def test_in_a_data_set_of_ours(tmp_path: Path, put: Maker, layout: str) -> None:
    path = Path(samples.write(tmp_path, layout))
    for number, name in enumerate(sorted(os.listdir(path))):
        copy = shutil.copytree(path, tmp_path / str(number))
        (copy / name).unlink()
        if number == 0 or not (tmp_path / "elsewhere").exists():
            put(copy / name)
        else:
            (copy / name).symlink_to(tmp_path / "elsewhere")
        refused(copy)


def test_where_the_manifest_states_that_it_is_empty(tmp_path: Path) -> None:
    """A pipe has a length of 0."""
    path = Path(samples.write(tmp_path, "shards"))
    value = json.loads((path / MANIFEST_NAME).read_bytes())
    del value["sha256"]
    for entry in value["files"]:
        entry["bytes"] = 0
        (path / entry["name"]).unlink()
        os.mkfifo(path / entry["name"])
    digest = hashlib.sha256((json.dumps(value, indent=1) + "\n").encode()).hexdigest()
    (path / MANIFEST_NAME).write_text(json.dumps(value | {"sha256": digest}, indent=1) + "\n")
    refused(path)


def test_a_pipe_that_replaces_a_file_is_not_waited_for(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "lmdb"))
    with fastdata.open(path) as reader:
        (path / "data.mdb").unlink()
        os.mkfifo(path / "data.mdb")
        with pytest.raises(FormatError, match="not a regular file"):
            reader[0]


def test_links_to_regular_files_are_read(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "shards"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in os.listdir(path):
        os.rename(path / name, elsewhere / name)
        (path / name).symlink_to(elsewhere / name)
    assert samples.read(str(path)) == samples.expected()


def test_a_file_that_is_read_through_dev_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = samples.write(tmp_path, "tar")
    with open(path, "rb") as file:
        assert samples.read(f"/dev/fd/{file.fileno()}") == samples.expected()


@pytest.mark.parametrize("layout", ["lmdb", "shards"])
def test_a_manifest_has_a_largest_size(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout)
    os.truncate(os.path.join(path, MANIFEST_NAME), 200 << 30)  # a hole: it takes no room
    for place in (path, f"{path}/*.tar") if layout == "shards" else (path,):
        with pytest.raises(FormatError, match=r"manifest.json: 214,748,364,800 bytes are too large for a manifest"):
            fastdata.open(place)


@pytest.mark.parametrize("layout", ["hdf5", "tar"])
def test_a_manifest_inside_the_data_has_a_largest_size(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = samples.write(tmp_path, layout)
    monkeypatch.setattr(opening, "MOST_MANIFEST", 300)
    with pytest.raises(FormatError, match=r"data\.(h5|tar): \d+ bytes are too large for a manifest"):
        fastdata.open(path)


def test_a_large_manifest_of_another_tool_is_skipped(photo_folder: Path) -> None:
    (photo_folder / MANIFEST_NAME).write_text('{"name": "not ours"}')
    os.truncate(photo_folder / MANIFEST_NAME, 200 << 30)
    with fastdata.open(photo_folder) as reader:
        assert len(reader) == 12


def test_a_manifest_lists_each_file_once(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "lmdb"))
    value = json.loads((path / MANIFEST_NAME).read_bytes())
    del value["sha256"]
    value["files"] = value["files"][:1] * 2
    digest = hashlib.sha256((json.dumps(value, indent=1) + "\n").encode()).hexdigest()
    (path / MANIFEST_NAME).write_text(json.dumps(value | {"sha256": digest}, indent=1) + "\n")
    with pytest.raises(FormatError, match="lists a file twice"):
        fastdata.open(path)


def test_a_foreign_lmdb_file_by_its_own_name(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "x"), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a.jpg", b"\xff\xd8\xff")
    with fastdata.open(tmp_path / "x" / "data.mdb") as reader:
        assert reader[0].key == "a"
