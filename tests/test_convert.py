"""convert: from folder to data set, and what it says about every file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdata
from fastdata.codec.decode import decode
from fastdata.converters.convert import convert
from fastdata.converters.report import ConvertReport
from fastdata.errors import ConvertError, OptionError, OutputExistsError
from tests import images

FORMATS = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "out.tar", "shards": "out"}


def run(src: Path, dst: Path, **options: Any) -> ConvertReport:
    """`convert`, quietly."""
    return convert(src, dst, **{"workers": 2, **options})


def digest(path: Path) -> dict[str, str]:
    """Every file of a data set and its hash."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {str(f.relative_to(path.parent)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.is_file()}


def put(root: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    return every_kind(tmp_path / "kinds")


def every_kind(root: Path) -> Path:
    """Every kind of file that there is, in two class folders."""
    table = images.odd_images()
    files = {f"{('a', 'b')[i % 2]}/{name}": data for i, (name, (data, _)) in enumerate(sorted(table.items()))}
    files |= {
        "a/notes.txt": b"no image",
        "readme.md": b"#",
        "a/.hidden.jpg": b"x",
        "b/Thumbs.db": b"x",
        "root.jpg": b"y",
    }
    return put(root, files)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_folder_becomes_a_data_set(photo_folder: Path, tmp_path: Path, kind: str) -> None:
    dst = tmp_path / FORMATS[kind]
    report = run(photo_folder, dst, resize=64, format="tar" if kind == "shards" else None)
    assert (report.kept, report.rejected, report.ignored) == (12, [], [])
    assert report.classes == ["cat", "dog", "zebra"]
    assert report.bytes_out > 0
    assert report.bytes_in == sum(f.stat().st_size for f in photo_folder.rglob("*.*"))
    with fastdata.open(dst) as reader:
        assert reader.classes == ("cat", "dog", "zebra")
        assert reader.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert list(reader.paths) == [f"{c}/{i}.{'png' if i == 3 else 'jpg'}" for c in report.classes for i in range(4)]
        assert reader.keys[5] == "dog/1"
        assert reader[5].fields["cls"] == b"1"
        for i in range(12):
            assert min(decode(reader[i].fields["jpg"]).shape[:2]) == 64


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_bytes_for_any_number_of_workers(kinds: Path, tmp_path: Path, kind: str) -> None:
    seen = []
    for workers in (1, 2, 5):
        dst = tmp_path / str(workers) / FORMATS[kind]
        dst.parent.mkdir()
        form = "tar" if kind == "shards" else None
        report = run(kinds, dst, workers=workers, format=form, shard_size=4000, resize=30, shuffle=True, seed=3)
        seen.append((digest(dst), report.rejected, report.warnings, report.kept))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.slow
def test_all_formats_hold_the_same_records(photo_folder: Path, tmp_path: Path) -> None:
    prints = set()
    for kind, name in FORMATS.items():
        run(photo_folder, tmp_path / name, format="tar" if kind == "shards" else None)
        with fastdata.open(tmp_path / name) as reader:
            prints.add(reader.manifest.fingerprint)
    assert len(prints) == 1


def test_every_file_is_named_once_and_the_counts_add_up(kinds: Path, tmp_path: Path) -> None:
    report = run(kinds, tmp_path / "out.tar")
    with fastdata.open(tmp_path / "out.tar") as reader:
        kept = list(reader.paths)
    named = kept + [note.path for note in report.rejected] + [note.path for note in report.ignored]
    hidden = {"b/Thumbs.db"}
    there = {str(f.relative_to(kinds)) for f in kinds.rglob("*") if f.is_file()} - hidden
    assert sorted(named) == sorted(there)
    assert report.kept == len(kept)
    table = images.odd_images()
    assert {os.path.basename(note.path) for note in report.rejected} == {
        n for n, (_, want) in table.items() if want is None
    }
    assert {note.path for note in report.ignored} == {"a/.hidden.jpg", "a/notes.txt", "readme.md", "root.jpg"}
    assert all(note.reason for note in report.rejected + report.ignored)


def test_source_files_are_not_touched(kinds: Path, tmp_path: Path) -> None:
    def state() -> list[tuple[str, int, int, str]]:
        found = [(str(f), f.stat().st_mtime_ns, f.stat().st_mode) for f in sorted(kinds.rglob("*"))]
        return [(*entry, "" if os.path.isdir(entry[0]) else Path(entry[0]).read_bytes().hex()) for entry in found]

    before = state()
    run(kinds, tmp_path / "out.lmdb")
    assert state() == before


def test_works_from_a_read_only_folder(photo_folder: Path, tmp_path: Path) -> None:
    folders = [photo_folder, *(f for f in photo_folder.iterdir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert run(photo_folder, tmp_path / "out.h5").kept == 12
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_a_flat_folder_has_neither_classes_nor_labels(tmp_path: Path) -> None:
    src = put(tmp_path / "flat", {f"{i}.jpg": images.jpeg(images.photo(20, 20, i)) for i in range(3)})
    report = run(src, tmp_path / "out.lmdb")
    assert (report.kept, report.classes) == (3, [])
    with fastdata.open(tmp_path / "out.lmdb") as reader:
        assert reader.labels.tolist() == [-1, -1, -1]
        assert set(reader[0].fields) == {"jpg"}


def test_class_orders(tmp_path: Path) -> None:
    src = put(tmp_path / "src", {f"{name}/x.jpg": images.jpeg(images.photo(9, 9)) for name in ("1", "2", "10")})
    assert run(src, tmp_path / "a.tar").classes == ["1", "10", "2"]
    assert run(src, tmp_path / "b.tar", class_order="natural").classes == ["1", "2", "10"]


@pytest.mark.slow
def test_shuffle_is_a_function_of_the_seed(photo_folder: Path, tmp_path: Path) -> None:
    def keys(name: str, **options: Any) -> list[str]:
        run(photo_folder, tmp_path / name, **options)
        with fastdata.open(tmp_path / name) as reader:
            return list(reader.keys)

    plain, first = keys("plain.tar"), keys("one.tar", shuffle=True)
    again, other = keys("two.tar", shuffle=True), keys("three.tar", shuffle=True, seed=1)
    assert first == again
    assert sorted(first) == sorted(plain) == sorted(other)
    assert len({tuple(plain), tuple(first), tuple(other)}) == 3


def test_nothing_usable_is_an_error_with_a_report_and_no_output(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConvertError, match="no images were found"):
        run(empty, tmp_path / "out.lmdb")
    src = put(
        tmp_path / "src", {"a/x.jpg": b"", "a/y.txt": b"message", "b/z.heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"}
    )
    with pytest.raises(ConvertError, match=r"no image could be used.*a/x\.jpg: .*empty"):
        run(src, tmp_path / "out.lmdb", report=tmp_path / "r.json")
    value = json.loads((tmp_path / "r.json").read_bytes())
    assert value["kept"] == 0
    assert {note["path"] for note in value["rejected"]} == {"a/x.jpg", "b/z.heic"}
    assert {note["path"] for note in value["ignored"]} == {"a/y.txt"}
    assert "no image could be used" in value["error"]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["empty", "r.json", "src"]


def places(tmp_path: Path) -> Iterator[tuple[dict[str, Any], type[Exception], str]]:
    src = tmp_path / "photos"
    yield {"src": tmp_path / "none"}, ConvertError, "no such folder"
    yield {"src": src / "cat" / "0.jpg"}, ConvertError, "this is a file"
    yield {"dst": src}, OptionError, "suffix|same path"
    yield {"dst": src / "out.lmdb"}, OptionError, "inside SRC"
    yield {"src": tmp_path / "out.lmdb" / "x", "dst": tmp_path / "out.lmdb"}, OptionError, "inside DST"
    yield {"dst": tmp_path / "out.zip"}, OptionError, "suffix"
    yield {"report": src / "r.json"}, OptionError, "inside SRC"
    yield {"report": tmp_path / "out.lmdb" / "r.json"}, OptionError, "inside DST"
    yield {"report": tmp_path}, OptionError, "is a folder"
    for name in ("src", "dst", "report"):
        yield {name: "a\0.lmdb"}, OptionError, "is not a path: it holds a NUL byte"
        yield {name: ""}, OptionError, "is not a path: it is empty"
        yield {name: "\ud800.lmdb"}, OptionError, "is not a path: surrogates"
        yield {name: 3}, OptionError, "must be a path, not 3"
    yield {"format": ["tar"]}, OptionError, "format must be 'lmdb', 'hdf5' or 'tar', not"
    yield {"src": "s3://bucket/photos"}, OptionError, "not read yet"
    yield {"dst": "s3://bucket/set", "format": "tar"}, OptionError, "not written to yet"
    yield {"dst": Path("gs://bucket/set.lmdb")}, OptionError, "not written to yet"
    yield {"dst": f"file://{tmp_path}/x.h5"}, OptionError, "give the plain path"
    yield {"report": "https://host/r.json"}, OptionError, "not written to yet"
    yield {"report": tmp_path / "nowhere" / "r.json"}, OptionError, "no folder"
    yield {"workers": 0}, OptionError, "workers"
    yield {"seed": -1}, OptionError, "seed"
    yield {"shard_size": "many"}, OptionError, "shard_size"


def test_wrong_places_and_options_are_refused_before_the_work(photo_folder: Path, tmp_path: Path) -> None:
    before = sorted(str(f) for f in tmp_path.rglob("*"))
    for given, kind, message in places(tmp_path):
        options = {"src": photo_folder, "dst": tmp_path / "out.lmdb", **given}
        with pytest.raises(kind, match=message):
            run(options.pop("src"), options.pop("dst"), **options)
        assert sorted(str(f) for f in tmp_path.rglob("*")) == before, given


def test_an_existing_destination_is_untouched_unless_overwrite(photo_folder: Path, tmp_path: Path) -> None:
    dst = tmp_path / "out.lmdb"
    run(photo_folder, dst)
    before = digest(dst)
    with pytest.raises(OutputExistsError, match="overwrite"):
        run(photo_folder, dst, resize=20, report=tmp_path / "r.json")
    assert digest(dst) == before
    assert "exists" in json.loads((tmp_path / "r.json").read_bytes())["error"]
    assert run(photo_folder, dst, resize=20, overwrite=True).kept == 12
    assert digest(dst) != before


def test_files_that_vanish_or_lose_their_end_meanwhile_are_rejected(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastdata.converters.sources import folder

    real = folder.find_images

    def find_and_remove(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        (photo_folder / "cat" / "0.jpg").unlink()
        (photo_folder / "dog" / "1.jpg").write_bytes(b"")
        os.mkfifo(photo_folder / "fifo")
        os.replace(photo_folder / "fifo", photo_folder / "zebra" / "2.jpg")
        return found

    monkeypatch.setattr(folder, "find_images", find_and_remove)
    report = run(photo_folder, tmp_path / "out.h5")
    assert report.kept == 9
    assert [note.path for note in report.rejected] == ["cat/0.jpg", "dog/1.jpg", "zebra/2.jpg"]
    assert "No such file" in report.rejected[0].reason


@pytest.mark.slow
def test_the_callers_opencv_setting_is_untouched_and_no_torch_is_imported(photo_folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, fastdata\nfastdata.convert(sys.argv[1], sys.argv[2], workers=1)\n"
        "assert 'torch' not in sys.modules and 'rich' not in sys.modules, 'heavy imports'\n"
        "import cv2\nbefore = cv2.getNumThreads()\n"
        "fastdata.convert(sys.argv[1], sys.argv[2], workers=1, overwrite=True)\n"
        "assert cv2.getNumThreads() == before\n"
    )
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code, str(photo_folder), str(tmp_path / "o.tar")], check=True, cwd=root)


def test_records_are_decoded_whole_by_keep_too(photo_folder: Path, tmp_path: Path) -> None:
    data = images.jpeg(images.photo(64, 64, 5))
    (photo_folder / "cat" / "cut.jpg").write_bytes(data[: len(data) // 2])
    report = run(photo_folder, tmp_path / "out.tar", encode="keep")
    assert [note.path for note in report.rejected] == ["cat/cut.jpg"]
    with fastdata.open(tmp_path / "out.tar") as reader:
        for i, path in enumerate(reader.paths):
            name, blob = reader.image(i)
            assert bytes(blob) == (photo_folder / path).read_bytes()
            assert name == path.rpartition(".")[2]
    kept = run(photo_folder, tmp_path / "all.tar", encode="keep", keep_damaged=True)
    assert kept.kept == 13
    assert [note.path for note in kept.warnings if "damaged" in note.reason] == ["cat/cut.jpg"]
    with fastdata.open(tmp_path / "all.tar") as reader:
        assert decode(reader[reader.find("cat/cut")].fields["jpg"]).shape == (64, 64, 3)
        assert np.count_nonzero(reader.labels == 0) == 5
