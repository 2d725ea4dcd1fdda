"""`fastdata.open`: detect what a path is, with an error for what cannot be read."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import fastdata
from fastdata.errors import FormatError, OptionError
from fastdata.formats import FORMATS, format_of
from fastdata.formats.base import Reader
from fastdata.formats.files import MOST_KEPT
from tests import images, samples

JPEG = images.jpeg(images.photo(24, 16))


def opened(path: object) -> Reader:
    return fastdata.open(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_paths_of_every_spelling(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = samples.write(tmp_path, layout)
    monkeypatch.chdir(tmp_path)
    name = os.path.basename(path)
    link = tmp_path / "link"
    link.symlink_to(name)
    spellings = [path, Path(path), name, f"./{name}", [path], (Path(path),), str(link), f"{tmp_path}/data*", "da[t]a*"]
    if os.path.isdir(path):
        spellings.append(f"{path}/")
    for spelling in spellings:
        with opened(spelling) as reader:
            assert samples.content(reader) == samples.expected(), spelling
            assert os.path.isabs(reader.path)


def test_a_name_that_looks_like_a_pattern_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "[a]{b,c}*"
    folder.mkdir()
    for layout in samples.LAYOUTS:
        assert samples.read(samples.write(folder, layout)) == samples.expected()


@pytest.mark.parametrize("place", ["nothing", "nothing/*.tar", "nothing-{0..3}.tar", "dangling", ["nothing"], "a\0b"])
def test_a_path_that_does_not_exist(tmp_path: Path, place: str | list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises((FileNotFoundError, ValueError), match=r"nothing|dangling|x00b"):
        opened(place)


@pytest.mark.parametrize("pattern", ["a{0..99999999999}.tar", "a{0..9999}{0..9999}.tar", "a{1..%s}.tar" % ("9" * 5000)])
def test_braces_that_stand_for_more_paths_than_anybody_has(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(FormatError, match="braces"):
        fastdata.open(f"{tmp_path}/{pattern}")


def test_unbalanced_braces(tmp_path: Path) -> None:
    with pytest.raises((FormatError, FileNotFoundError), match=r"x\{0"):
        opened(str(tmp_path / "x{0..3.tar"))


@pytest.mark.parametrize(
    "given",
    [3, None, b"set.lmdb", [3], torch.utils.data.TensorDataset(torch.ones(2))],
    ids=["int", "None", "bytes", "list", "dataset"],
)
def test_what_is_no_path_is_told(given: Any) -> None:
    for take in (fastdata.open, fastdata.ImageDataset, fastdata.ImageStream):
        with pytest.raises(TypeError, match="is given by its path"):
            take(given)


def test_an_empty_list() -> None:
    with pytest.raises(FormatError, match="no tar files"):
        opened([])


@pytest.mark.parametrize("fill", [{}, {"readme.txt": b"text"}, {"a/b.txt": b"text"}])
def test_a_folder_without_images(tmp_path: Path, fill: dict[str, bytes]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name, blob in fill.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(blob)
    with pytest.raises(FormatError, match="neither a data set nor a folder with images"):
        opened(root)


def test_files_of_others_are_named(tmp_path: Path) -> None:
    for name, message in {
        "x.beton": "FFCV", "x.rec": "RecordIO", "x.tfrecord": "TFRecord", "x.parquet": "Parquet", "x.mds": "Streaming",
        "x.bin": "not a data set", "x.txt": "not a data set",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(b"something " * 100)
        with pytest.raises(FormatError, match=f"{name}: .*{message}.*fastdata convert"):
            opened(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/1.jpg", JPEG)
    with pytest.raises(FormatError, match=r"x\.zip: a zip archive"):
        opened(tmp_path / "x.zip")
    (tmp_path / "image.jpg").write_bytes(JPEG)
    with pytest.raises(FormatError, match="not a data set"):
        opened(tmp_path / "image.jpg")


@pytest.mark.parametrize("name", ["x.h5", "x.hdf5", "x.tar"])
@pytest.mark.parametrize("blob", [b"", b"\0" * 3000, b"text" * 1000, JPEG])
def test_endings_that_lie(tmp_path: Path, name: str, blob: bytes) -> None:
    (tmp_path / name).write_bytes(blob)
    if name == "x.tar" and blob == b"\0" * 3000:  # nothing but an end-of-archive mark: an empty tar
        with opened(tmp_path / name) as reader:
            assert len(reader) == 0
        return
    with pytest.raises(FormatError, match=name):
        opened(tmp_path / name)


def test_content_decides_where_the_ending_says_nothing(tmp_path: Path) -> None:
    for layout in samples.LAYOUTS:
        path = Path(samples.write(tmp_path, layout))
        path.rename(tmp_path / f"{layout}-renamed")
        assert samples.read(str(tmp_path / f"{layout}-renamed")) == samples.expected()


def test_hdf5_of_others(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["images"] = [1, 2, 3]
    with pytest.raises(FormatError, match=r"did not write.*images.*fastdata convert"):
        opened(tmp_path / "x.h5")
    for name in ("index", "manifest"):
        with h5py.File(tmp_path / "y.h5", "a") as file:
            file[name] = [1, 2, 3]
    with pytest.raises(FormatError, match=r"y\.h5"):
        opened(tmp_path / "y.h5")


def test_an_image_folder_with_a_manifest_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(JPEG)
    for blob in (b'{"name": "web app"}', b"[]", b"not json", b""):
        (tmp_path / "manifest.json").write_bytes(blob)
        with opened(tmp_path) as reader:
            assert reader.classes == ("a",)


def test_leftovers_are_named(tmp_path: Path) -> None:
    left = tmp_path / ".data.fastdata"
    (left / "old").mkdir(parents=True)
    with pytest.raises(FormatError, match="did not finish"):
        opened(left)
    with pytest.raises(FileNotFoundError, match=r"replacement was interrupted.*old"):
        opened(tmp_path / "data")


def test_lists_hold_tars_only(tmp_path: Path) -> None:
    tar, other = samples.write(tmp_path, "tar"), samples.write(tmp_path, "hdf5")
    for places in ([tar, other], [other, tar], f"{tmp_path}/data*"):
        with pytest.raises(FormatError, match=r"data\.h5: not a tar file"):
            opened(places)
    os.unlink(other)
    folder = samples.write(tmp_path, "shards")
    with pytest.raises(FormatError, match="data: not a tar file"):
        opened([tar, folder])


def test_a_shard_of_ours_beside_its_manifest(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "shards"))
    shards = sorted(path.glob("*.tar"))
    with opened(path) as whole, opened(shards[1]) as part:
        first = whole.find(part.keys[0])
        assert 0 < first < first + len(part) < len(whole)
        assert samples.content(part) == samples.content(whole)[first : first + len(part)]
        assert part.labels.tolist() == whole.labels[first : first + len(part)].tolist()
        assert list(part.paths) == list(whole.paths)[first : first + len(part)]
        assert part.find(part.keys[-1]) == len(part) - 1
        assert part.image(-1) == whole.image(first + len(part) - 1)
        with pytest.raises(KeyError):
            part.find(whole.keys[0])
        with pytest.raises(IndexError):
            part[len(part)]
        assert list(part.verify()) == []
    reordered = [str(shard) for shard in shards[::-1]]
    with opened(reordered) as reader:
        assert sorted(reader.keys) == sorted(item.key for item in samples.RECORDS)
        assert samples.content(reader) != samples.expected()


def test_data_sets_that_are_decoded_differently_are_not_read_as_one(tmp_path: Path) -> None:
    paths = []
    for number, options in enumerate(
        ({"alpha": "white", "max_pixels": 5}, {}, {"max_pixels": 7}, {"alpha": "black"}, {"max_pixels": "x"})
    ):
        (tmp_path / str(number)).mkdir()
        paths.append(samples.write(tmp_path / str(number), "tar", samples.RECORDS[:1], options=options))
    with fastdata.open(paths[::2][:2]) as reader:
        assert reader.manifest.options == {"alpha": "white", "max_pixels": 7}
    for some in (paths[:3], paths[::4]):  # one of them has the usual limit, or none that could be meant
        with fastdata.open(some) as reader:
            assert reader.manifest.options == {"alpha": "white"}  # the limit of whoever opens them holds
    with pytest.raises(
        FormatError, match=r"with alpha 'white'.*3/data\.tar with 'black'.*convert them with the same options"
    ):
        fastdata.open(paths[:4])


def test_every_format_of_the_table_can_be_loaded() -> None:
    from fastdata.formats import load

    for entry in FORMATS.values():
        assert callable(load(entry.reader))
        assert not entry.sink or callable(load(entry.sink, "fastdata.converters.writers"))
    assert MOST_KEPT < 512  # of two kinds each, where 1,024 descriptors is a common limit


def test_what_to_write_is_told_by_ending_or_choice() -> None:
    assert format_of("x/data.lmdb/") == "lmdb"
    assert format_of("data", "hdf5") == "hdf5"
    for path, chosen in (("data", None), ("data.zip", None), ("x.tar", "lmdb"), ("x", "folder"), ("x", "zip")):
        with pytest.raises(OptionError):
            format_of(path, chosen)


def test_a_data_set_in_a_renamed_folder_after_it_was_copied(tmp_path: Path) -> None:
    for layout in ("lmdb", "shards"):
        path = samples.write(tmp_path, layout)
        copy = shutil.copytree(path, tmp_path / f"copy of {layout}")
        assert samples.read(str(copy)) == samples.expected()
