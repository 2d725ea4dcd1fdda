"""Class folders that do not look like classes are reported when the folder is read or converted."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata.formats.class_names import doubts
from tests import images
from tests.command import run
from tests.test_convert import put
from tests.test_convert import run as convert

BELONGS, PARTS, ONE = "look like images and their masks or labels", "look like parts", "looks like a part"


@pytest.mark.parametrize(
    ("names", "nested", "messages"),
    [
        (["images", "masks"], False, [BELONGS]),
        (["image", "label"], False, [BELONGS]),
        (["JPEGImages", "SegmentationClass", "Annotations"], False, [BELONGS]),
        (["leftImg8bit", "gtFine"], False, [BELONGS]),
        (["train", "train_masks"], False, [BELONGS]),
        (["train_images", "train_masks", "val_images", "val_masks"], False, [BELONGS, PARTS]),
        (["test", "train", "val"], True, [PARTS]),
        (["Training", "Validation"], False, [PARTS]),
        (["train2017", "val2017", "annotations"], False, [BELONGS, PARTS]),
        (["trainA", "trainB", "testA", "testB"], False, [PARTS]),
        (["train"], True, [ONE]),
        (["train"], False, []),
        (["plane", "train"], False, []),
        (["with_mask", "without_mask"], False, []),
        (["masks"], False, []),
        (["x", "y"], False, []),
        (["cat", "dog", "zebra"], True, []),
        ([], False, []),
    ],
)
def test_names_that_are_not_classes(names: Sequence[str], nested: bool, messages: Sequence[str]) -> None:
    found = doubts(names, nested=nested)
    assert len(found) == len(messages)
    assert all(part in sentence for part, sentence in zip(messages, found, strict=True))
    assert all(repr(names[0]) in sentence for sentence in found[:1])


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    blob = images.png(images.photo(8, 8))
    return put(tmp_path / "seg", {"images/1.png": blob, "masks/1.png": blob})


@pytest.mark.parametrize(
    "reads",
    [fastdata.open, fastdata.ImageDataset, fastdata.ImageStream, lambda path: fastdata.DataLoader(path, 1)],
    ids=["open", "dataset", "stream", "loader"],
)
def test_reading_warns_once(masked: Path, reads: Callable[[Path], Any]) -> None:
    with pytest.warns(UserWarning, match="'images', 'masks' look like images and their masks or labels") as caught:
        made = reads(masked)
    assert len(caught) == 1
    reader = getattr(made, "reader", made)
    if reader is not made or reads is fastdata.open:  # what a worker gets
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pickle.loads(pickle.dumps(reader))


def test_converting_and_the_command_warn(masked: Path, tmp_path: Path) -> None:
    report = convert(masked, tmp_path / "out.tar", encode="keep")
    assert [note.path for note in report.warnings if "'masks'" in note.reason] == ["."]
    code, _, err = run("convert", masked, tmp_path / "out.lmdb", "--encode", "keep", "--workers", "1")
    assert (code, sum("warning: 'images', 'masks' look like" in line for line in err.splitlines())) == (0, 1)
    code, _, err = run("info", masked)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith(f"warning: {masked}: 'images', 'masks' look like")


def test_files_that_are_left_out_of_a_folder_are_reported(tmp_path: Path) -> None:
    put(tmp_path / "flat", {"1.png": images.png(images.photo(8, 8)), "note": b"text"})
    (tmp_path / "flat" / "gone.jpg").symlink_to("nowhere")
    (tmp_path / "flat" / "text.jpg").symlink_to("note")
    with pytest.warns(UserWarning, match=r"2 files are left out: gone\.jpg: a link to nothing; text\.jpg: a link to"):
        reader = fastdata.open(tmp_path / "flat")
    assert list(reader.paths) == ["1.png"]


def test_a_folder_that_cannot_be_read_is_a_format_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:  # root may read everything, so permissions are no test
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("fastdata.formats.detect.any_manifest", refuse)
    with pytest.raises(fastdata.FormatError, match=f"{tmp_path}: cannot be read: Permission denied"):
        fastdata.open(tmp_path)


def test_a_file_that_cannot_be_read_names_folder_and_record(tmp_path: Path) -> None:
    put(tmp_path / "flat", {"1.png": images.png(images.photo(8, 8))})
    reader = fastdata.open(tmp_path / "flat")
    (tmp_path / "flat" / "1.png").unlink()
    for read in (reader.image, reader.image_size, reader.size, reader.__getitem__):
        with pytest.raises(fastdata.FormatError, match=r"flat: record '1': '1\.png' cannot be read: No such file"):
            read(0)


SUFFIXES = (
    "sgi", "rgb", "bw", "xbm", "eps", "im", "msp", "pcx", "tga", "dds", "svg", "xpm", "wmf", "emf", "fits", "iff",
    "cin", "dpx", "mng", "jng", "fli", "psd", "jxl", "heic", "cr2", "3fr",
)  # fmt: skip


def test_files_with_the_suffix_of_an_image_are_rejected(tmp_path: Path) -> None:
    files = {f"x.{suffix}": b"no" for suffix in SUFFIXES}
    src = put(tmp_path / "src", {"1.png": images.png(images.photo(8, 8)), "notes.raw2": b"no", **files})
    report = convert(src, tmp_path / "out.tar", encode="keep")
    assert sorted(note.path for note in report.rejected) == sorted(files)
    assert [note.path for note in report.ignored] == ["notes.raw2"]
