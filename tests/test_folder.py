"""The walk over an image folder, and the reader of one."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastdata
from fastdata.errors import FormatError
from fastdata.formats import folder as folder_walk
from fastdata.formats.folder import FolderScan, read_file, scan
from fastdata.formats.mounts import pseudo_devices
from tests import images

JPEG = images.jpeg(images.photo(24, 16))
PNG = images.png(images.photo(16, 24))


def fill(root: Path, *names: str, content: bytes = JPEG) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def paths(found: FolderScan) -> list[str]:
    return [ref.path for ref in found.entries]


def visible(root: Path) -> Iterator[str]:
    """Every file that is neither hidden nor below something hidden, and hidden images; links not followed."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name.lower() != "__macosx"]
        for name in files:
            hidden = name.startswith(".") and (name.startswith("._") or not name.endswith(".jpg"))
            if not hidden and name.lower() not in ("thumbs.db", "desktop.ini"):
                yield os.path.relpath(os.path.join(folder, name), root)


def check_counts(root: Path, found: FolderScan) -> None:
    named = [*paths(found), *(path for path, _ in found.ignored), *(path for path, _ in found.rejected)]
    assert sorted(named) == sorted(visible(root))


def image_folder_order(root: Path) -> list[tuple[str, int]]:
    """The order in which torchvision's ImageFolder lists its samples."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    return [
        (os.path.relpath(os.path.join(folder, name), root), number)
        for number, label in enumerate(classes)
        for folder, _, names in sorted(os.walk(root / label, followlinks=True))
        for name in sorted(names)
    ]


NAMES = [
    "b/10.jpg", "b/9.jpg", "b/sub/1.jpg", "b/sub-x/1.jpg", "b/sub x/2.jpg", "b/sub/deep/1.jpg", "b/Z.jpg", "b/a.jpg",
    "a/z.jpg", "a/é.jpg", "a/1.jpg", "10/1.jpg", "9/1.jpg", "B/1.jpg", "a b/1.jpg", "a-b/1.jpg", "é/1.jpg", "a/a.a.jpg",
]  # fmt: skip


def test_the_order_is_image_folders(tmp_path: Path) -> None:
    found = scan(str(fill(tmp_path, *NAMES)))
    assert [(ref.path, ref.label) for ref in found.entries] == image_folder_order(tmp_path)
    assert found.classes == ("10", "9", "B", "a", "a b", "a-b", "b", "é")
    check_counts(tmp_path, found)


def test_the_order_is_torchvisions_own(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    theirs = datasets.ImageFolder(str(fill(tmp_path, *NAMES)))
    found = scan(str(tmp_path))
    assert [(str(tmp_path / ref.path), ref.label) for ref in found.entries] == theirs.samples
    assert list(found.classes) == theirs.classes


def test_natural_class_order(tmp_path: Path) -> None:
    fill(tmp_path, *(f"{name}/1.jpg" for name in ("10", "9", "1", "x10", "x9", "x", "x9y", "²")))
    found = scan(str(tmp_path), natural=True)
    assert found.classes == ("1", "9", "10", "x", "x9", "x9y", "x10", "²")
    assert [ref.label for ref in found.entries] == list(range(8))


def test_hidden_and_system_files_are_not_records(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/.1.jpg", "a/._1.jpg", "a/.DS_Store", "a/Thumbs.db", "a/desktop.ini", "a/THUMBS.DB")
    fill(tmp_path, ".git/x.jpg", "__MACOSX/a/1.jpg", "a/.ipynb_checkpoints/1.jpg", "@eaDir/1.jpg", ".hidden.jpg")
    (tmp_path / "a" / ".folder.jpg").mkdir()
    found = scan(str(tmp_path))
    assert (found.classes, paths(found), found.rejected, found.warnings) == (("a",), ["a/1.jpg"], [], [])
    assert found.ignored == [(".hidden.jpg", "a hidden file"), ("a/.1.jpg", "a hidden file")]


def test_hidden_images_are_ignored_by_name(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg", "..jpg", ".x.PNG", ".jpg", ".x.y.heic", ".jpg.txt", "._1.jpg", ".DS_Store")
    found = scan(str(tmp_path))
    assert paths(found) == ["1.jpg"]
    assert [path for path, _ in found.ignored] == ["..jpg", ".jpg", ".x.PNG", ".x.y.heic"]


def test_the_suffix_or_the_content_says_image(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.JPEG", "a/2.jfif", "a/3", "a/4.dat", "a/5.txt.png", "a/photo.HEIC")
    fill(tmp_path, "a/empty.jpg", "a/empty.txt", content=b"")
    fill(tmp_path, "a/notes.txt", "a/labels.csv", content=b"text")
    fill(tmp_path, "a/scan", content=bytes(128) + b"DICM")  # whose signature comes late
    found = scan(str(tmp_path))
    wanted = ["a/1.JPEG", "a/2.jfif", "a/3", "a/4.dat", "a/5.txt.png", "a/empty.jpg", "a/photo.HEIC", "a/scan"]
    assert paths(found) == wanted
    assert found.ignored == [(f"a/{name}", "not an image") for name in ("empty.txt", "labels.csv", "notes.txt")]
    check_counts(tmp_path, found)


def test_beside_class_folders_nothing_counts(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "stray.jpg", "README.md")
    found = scan(str(tmp_path))
    assert paths(found) == ["a/1.jpg"]
    assert dict(found.ignored)["stray.jpg"] == "beside the class folders, not in one"
    check_counts(tmp_path, found)


def test_a_flat_folder(tmp_path: Path) -> None:
    found = scan(str(fill(tmp_path, "2.jpg", "10.jpg", "b.png")))
    assert [(ref.path, ref.label) for ref in found.entries] == [("10.jpg", -1), ("2.jpg", -1), ("b.png", -1)]
    assert found.classes == ()


def test_a_flat_folder_with_folders_that_hold_no_images(tmp_path: Path) -> None:
    fill(tmp_path, "1.jpg", "2.jpg")
    fill(tmp_path, "docs/readme.txt", content=b"text")
    (tmp_path / "empty").mkdir()
    found = scan(str(tmp_path))
    assert (paths(found), found.classes) == (["1.jpg", "2.jpg"], ())
    assert {path for path, _ in found.warnings} == {"docs", "empty"}
    check_counts(tmp_path, found)


def test_an_empty_class_keeps_its_number(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "c/1.jpg")
    (tmp_path / "b").mkdir()
    found = scan(str(tmp_path))
    assert (found.classes, [ref.label for ref in found.entries]) == (("a", "b", "c"), [0, 2])
    assert found.warnings == [("b", "a class without images keeps its number")]


def test_nothing_at_all(tmp_path: Path) -> None:
    assert scan(str(tmp_path)) == FolderScan()
    (tmp_path / "a").mkdir()
    fill(tmp_path, "a/x.txt", "y.txt", content=b"text")
    found = scan(str(tmp_path))
    assert not found.entries
    check_counts(tmp_path, found)


def test_stems_that_clash_keep_their_suffix(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/1.png", "a/1.png.jpg", "a/1.jpg.gif", "a/1", "b/1.jpg", "a/" + "n" * 240 + ".jpg")
    keys = {ref.path: ref.key for ref in scan(str(tmp_path)).entries}
    assert keys["a/1"] == "a/1"
    assert keys["a/1.jpg"] == "a/1%2Ejpg"
    assert keys["a/1.jpg.gif"] == "a/1%2Ejpg%2Egif"
    assert keys["a/1.png"] == "a/1%2Epng"
    assert keys["b/1.jpg"] == "b/1"
    assert len(set(keys.values())) == len(keys)


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", "a/1.jpg", "b/deep/1.jpg")
    elsewhere = fill(tmp_path / "elsewhere", "x.jpg", "sub/y.jpg")
    (root / "c").symlink_to(elsewhere)
    (root / "a" / "2.jpg").symlink_to(elsewhere / "x.jpg")
    (root / "a" / "again").symlink_to(root / "a")
    (root / "b" / "deep" / "up").symlink_to(root)
    (root / "b" / "self").symlink_to("self")
    (root / "a" / "gone.jpg").symlink_to("nowhere")
    (root / "a" / "gone.txt").symlink_to("nowhere")
    fill(elsewhere.parent, "note", content=b"text")
    fill(elsewhere.parent, "blob")
    (root / "a" / "text.jpg").symlink_to(elsewhere.parent / "note")
    (root / "a" / "chain.jpg").symlink_to("text.jpg")
    (root / "a" / "image.jpg").symlink_to(elsewhere.parent / "blob")
    found = scan(str(root))
    assert paths(found) == ["a/1.jpg", "a/2.jpg", "a/image.jpg", "b/deep/1.jpg", "c/x.jpg", "c/sub/y.jpg"]
    assert found.classes == ("a", "b", "c")
    assert found.rejected == [
        ("a/chain.jpg", "a link to a file that is not an image"),
        ("a/gone.jpg", "a link to nothing"),
        ("a/text.jpg", "a link to a file that is not an image"),
    ]
    assert {path for path, _ in found.ignored} == {"a/gone.txt", "b/self"}
    assert {path for path, _ in found.warnings} == {"a/again", "b/deep/up"}


MOUNTS = """\
22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw
26 24 8:1 / /mnt/a\\040-\\040proc rw - ext4 /dev/sda1 rw
27 24 : / /odd rw - proc proc rw
"""


def test_the_table_of_mounts_shows_pseudo_file_systems(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    found = pseudo_devices(str(tmp_path / "mounts"))
    assert found == {os.makedev(0, 21): "proc", os.makedev(0, 22): "sysfs"}
    assert pseudo_devices(str(tmp_path / "none")) == {}


def test_a_pseudo_file_system_is_never_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a/1.jpg", "a/fake/2.jpg")
    identity = folder_walk._identity

    def elsewhere(path: str) -> tuple[int, int]:
        return (4242, 1) if path.endswith("fake") else identity(path)

    monkeypatch.setattr(folder_walk, "_identity", elsewhere)
    monkeypatch.setattr(folder_walk, "pseudo_devices", lambda: {4242: "proc"})
    found = scan(str(tmp_path))
    assert paths(found) == ["a/1.jpg"]
    assert found.warnings == [("a/fake", "a pseudo file system (proc): not followed")]
    fake = tmp_path / "a" / "fake"
    with pytest.raises(FormatError, match=r"fake: this folder cannot be listed: .*a pseudo file system \(proc\)"):
        fastdata.open(fake)
    with pytest.raises(fastdata.ConvertError, match=r"fake: cannot be listed .*a pseudo file system \(proc\)"):
        fastdata.convert(fake, tmp_path / "out.lmdb", workers=1)


@pytest.mark.skipif(not os.path.exists("/proc/self/mountinfo"), reason="this system has no /proc")
def test_proc_is_refused() -> None:
    with pytest.raises(FormatError, match="pseudo file system"):
        fastdata.open("/proc")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipes_sockets_and_devices_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a/1.jpg")
    os.mkfifo(tmp_path / "a" / "pipe.jpg")
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "a" / "null.jpg").symlink_to("/dev/zero")
    monkeypatch.chdir(tmp_path / "a")  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.png")
    found = scan(str(tmp_path))
    assert paths(found) == ["a/1.jpg"]
    assert sorted(path for path, _ in found.rejected) == ["a/null.jpg", "a/pipe.jpg", "a/socket.png"]
    assert [path for path, _ in found.ignored] == ["a/pipe"]
    check_counts(tmp_path, found)
    for name in ("pipe", "null.jpg"):
        with pytest.raises(OSError, match="not a regular file"):
            read_file(name)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(str(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs permissions")
def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a/1.jpg", "b/secret/1.jpg", "b/1.jpg")
    listed = os.scandir

    def refuses(path: str) -> object:  # root may list everything, so permissions are no test
        if str(path).rstrip("/").endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuses)
    found = scan(str(tmp_path))
    assert paths(found) == ["a/1.jpg", "b/1.jpg"]
    assert found.rejected == [("b/secret", "this folder cannot be listed: Permission denied")]
    for entry in (
        fastdata.open,
        fastdata.ImageDataset,
        fastdata.ImageStream,
        lambda path: fastdata.DataLoader(path, 1),
    ):
        with pytest.raises(FormatError, match="b/secret: this folder cannot be listed: Permission denied"):
            entry(tmp_path)


@pytest.mark.parametrize("name", ["new\nline", "bad\udcff\udcfe", "  ", "%41", "__x__", "q'\"\\", "-rf", "n" * 200])
def test_odd_names_come_through(tmp_path: Path, name: str) -> None:
    fill(tmp_path, f"{name}/{name}.jpg")
    found = scan(str(tmp_path))
    assert (found.classes, paths(found)) == ((name,), [f"{name}/{name}.jpg"])
    with fastdata.open(tmp_path) as reader:
        assert list(reader.paths) == [f"{name}/{name}.jpg"]
        assert reader[reader.find(found.entries[0].key)].fields["jpg"] == JPEG


def test_the_reader_of_a_folder(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/2.jpg")
    fill(tmp_path, "b/1.jpg", content=PNG)  # the name lies
    with fastdata.open(tmp_path) as reader, pickle.loads(pickle.dumps(reader)) as copy:
        for one in (reader, copy):
            assert [one[i].fields for i in (0, 1, -1)] == [
                {"jpg": JPEG, "cls": b"0"}, {"png": PNG, "cls": b"1"}, {"jpg": JPEG, "cls": b"1"},
            ]  # fmt: skip
            assert (one.image(1), one.image_size(1), one.size(1)) == (("png", PNG), len(PNG), len(PNG) + 1)
            assert (one.classes, one.labels.tolist()) == (("a", "b"), [0, 1, 1])
            assert (one.manifest.format, one.manifest.count, one.manifest.fingerprint) == ("folder", 3, "")
            assert (list(one.keys), one.find("b/2")) == (["a/1", "b/1", "b/2"], 2)
            assert list(one.verify()) == []
            with pytest.raises(IndexError):
                one[3]
        (tmp_path / "b" / "2.jpg").unlink()
        assert [key for key, _ in reader.verify()] == ["b/2"]


def test_a_folder_that_changed_since_it_was_pickled(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "b/2.jpg")
    with fastdata.open(tmp_path) as reader:
        blob = pickle.dumps(reader)
    shutil.move(tmp_path / "a" / "1.jpg", tmp_path / "a" / "3.jpg")
    with pytest.raises(FormatError, match="replaced"):
        pickle.loads(blob)


@pytest.mark.parametrize("path", ["notes", "a/notes"])
def test_a_file_that_cannot_be_read_does_not_end_the_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Also beside the class folders, where files are only looked at to say what they are."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(images.png(images.photo(4, 4)))
    (tmp_path / path).write_bytes(b"x")

    def refuse(path: str, _limit: int = -1) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("fastdata.formats.folder.read_file", refuse)
    found = scan(str(tmp_path))
    assert [entry.path for entry in found.entries] == ["a/1.png"]
    assert found.ignored == [(path, "its suffix is not that of an image, and it cannot be read: Permission denied")]
