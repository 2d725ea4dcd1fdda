"""`fastdata verify`, `info` and `bench` of odd or hostile content, and of a machine that runs out of something."""

from __future__ import annotations

import dataclasses
import errno
import io
import resource
import struct
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fastdata
from fastdata import Record
from fastdata.converters.writers import base
from fastdata.formats.files import DataFiles
from fastdata.manifest import Manifest
from tests import images, samples
from tests.command import run, strict

JPEG = images.jpeg(images.photo(16, 12))
ESCAPE = "\x1b]0;PWN\x07\x1b[31m\r\nx"


def npy(shape: str, version: int = 1) -> bytes:
    header = f"{{'descr':'|u1','fortran_order':False,'shape':{shape}}}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + b"x" * 99


ODD = {
    "deep": {"jpg": JPEG, "json": b"[" * 100_000},
    "text": {"jpg": JPEG, "json": b"\xff\xfe"},
    "digits": {"jpg": JPEG, "json": b"1" * 10_000},
    "bool": {"npy": npy("(True,4,3)")},
    "long": {"npy": npy("(" + "9" * 400 + ",4,3)")},
    "version": {"npy": npy("(4,4,3)", version=9)},
    "broken": {"jpg": b"broken"},
}


def test_a_bad_record_is_reported_and_the_next_one_is_checked(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "odd.lmdb") as writer:
        for key, fields in ODD.items():
            writer.write(Record(key, fields))
            writer.write(Record(f"{key}/good", {"jpg": JPEG, "json": b"{}"}))
    code, out, err = run("verify", tmp_path / "odd.lmdb", "--json", "--workers", "2")
    facts = strict(out)
    assert (code, err, facts["damaged"], facts["problems_of_data_set"]) == (1, "", len(ODD), 0)
    assert sorted(entry["name"] for entry in facts["problems"]) == sorted(ODD)


@pytest.mark.parametrize("key", ["bool", "long", "version"])
def test_an_odd_array_is_a_decode_error_everywhere(tmp_path: Path, key: str) -> None:
    with fastdata.create(tmp_path / "odd.tar") as writer:
        writer.write(Record(key, ODD[key]))
    path = str(tmp_path / "odd.tar")
    for transform in (None, fastdata.CenterCrop(2)):
        with pytest.raises(fastdata.DecodeError, match=f"record '{key}'"):
            fastdata.ImageDataset(path, transform=transform)[0]
        with pytest.raises(fastdata.DecodeError, match=f"record '{key}'"):
            next(iter(fastdata.ImageStream(path, transform=transform)))
        with (
            fastdata.DataLoader(path, 1, num_workers=0, transform=transform) as batches,
            pytest.raises(fastdata.DecodeError, match=f"record '{key}'"),
        ):
            next(iter(batches))


def test_a_decoder_that_raises_anything_is_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fastdata.create(tmp_path / "d.tar") as writer:
        for i in range(3):
            writer.write(Record(f"k{i}", {"png": images.png(images.photo(8, 8, i))}))

    def odd(*_: object) -> Any:
        raise KeyError("whatever")

    monkeypatch.setattr("fastdata.codec.headers.png.pixels_only", odd)
    code, out, _ = run("verify", tmp_path / "d.tar", "--json")
    assert (code, strict(out)["damaged"], len(strict(out)["problems"])) == (1, 3, 3)
    with pytest.raises(fastdata.DecodeError, match="KeyError"):
        fastdata.ImageDataset(str(tmp_path / "d.tar"))[0]


def no_files(*_: object) -> Any:
    raise OSError(errno.EMFILE, "Too many open files", "shard.tar")


def no_memory(*_: object) -> Any:
    raise MemoryError


def no_thread(*_: object) -> Any:
    raise RuntimeError("can't start new thread")


LACKS = [
    ((DataFiles, "read"), no_files),
    (("fastdata.codec.decode.jpeg.decode_logged",), no_memory),
    ((ThreadPoolExecutor, "submit"), no_thread),
]


@pytest.mark.parametrize("layout", [*samples.LAYOUTS, "folder"])
@pytest.mark.parametrize(("where", "how"), LACKS)
def test_what_the_machine_lacks_is_not_damage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    photo_folder: Path,
    layout: str,
    where: tuple[Any, ...],
    how: Callable[..., Any],
) -> None:
    path = str(photo_folder)
    if layout != "folder":
        path = samples.write(tmp_path, layout, [Record(f"k{i}", {"jpg": JPEG, "cls": b"0"}) for i in range(3)])
    monkeypatch.setattr(*where, how)
    if layout == "folder" and how is no_files:
        monkeypatch.setattr("fastdata.formats.folder.read_file", how)
    code, out, err = run("verify", path, "--quiet")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "memory" in err if how is no_memory else "Too many open files" in err or "start new thread" in err


@pytest.mark.parametrize("limit", [64, 128])
def test_many_shards_are_verified_under_a_low_limit(tmp_path: Path, limit: int) -> None:
    path = samples.write(tmp_path, "shards", [Record(f"k{i}", {"jpg": JPEG}) for i in range(200)], shard_size=2000)
    assert len(list(Path(path).glob("*.tar"))) > limit
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        for place in (path, f"{path}/*.tar"):
            code, out, err = run("verify", place, "--quiet")
            assert (code, err) == (0, "")
            assert out.startswith("200 records, no damage found")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set in which every text holds terminal escapes."""

    def finished(manifest: Manifest, *rest: Any) -> Manifest:
        made = base.finished(manifest, *rest)
        options = {ESCAPE: {ESCAPE: ESCAPE}, "alpha": ESCAPE}
        return dataclasses.replace(made, fields=(*made.fields, ESCAPE), classes=(ESCAPE,), options=options)

    monkeypatch.setattr("fastdata.converters.writers.lmdb.finished", finished)
    return samples.write(tmp_path, "lmdb", [Record("k", {"jpg": JPEG, "cls": b"0"}, ESCAPE)], classes=("a",))


@pytest.mark.parametrize("arguments", [["info"], ["verify", "--quiet"], ["bench", "--repeats", "1"]])
@pytest.mark.parametrize("person", [False, True])
def test_no_text_of_a_data_set_reaches_the_terminal_raw(
    hostile: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], person: bool
) -> None:
    from fastdata.cli import terminal

    if person:
        monkeypatch.setattr(terminal, "is_terminal", lambda _: True)
    code, out, err = run(arguments[0], hostile, *arguments[1:])
    assert code in (0, 1)
    assert "\x07" not in out + err
    assert "\r" not in out + err
    assert "\x1b]" not in out + err
    assert "\x1b[31m" not in out + err
    if arguments[0] != "bench":
        assert r"\x1b]0;PWN\x07\x1b[31m\r\nx" in out


def test_messages_of_libraries_and_warnings_are_printable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*_: object, **__: object) -> Any:
        warnings.warn(f"odd {ESCAPE}", UserWarning, stacklevel=1)
        raise OSError(f"library: {ESCAPE}")

    monkeypatch.setattr("fastdata.formats.detect.open", warned)
    for command in ("info", "verify", "bench"):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            code, out, err = run(command, tmp_path)
        assert (code, out) == (1, "")
        assert err.splitlines() == [
            r"warning: odd \x1b]0;PWN\x07\x1b[31m\r\nx", r"error: library: \x1b]0;PWN\x07\x1b[31m\r\nx"
        ]  # fmt: skip


def test_the_limit_of_pixels_is_the_callers(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("L", (200, 100)).save(buffer, "PNG")
    for name, option in (("raised.lmdb", 10**12), ("lowered.h5", 10_000), ("plain.tar", None)):
        options = {} if option is None else {"max_pixels": option}
        with fastdata.create(tmp_path / name, options=options) as writer:
            writer.write(Record("k", {"png": buffer.getvalue()}))
        for limit, damaged in ((None, option == 10_000), (19_999, True), (20_000, option == 10_000)):
            arguments = [] if limit is None else ["--max-pixels", str(limit)]
            code, out, _ = run("verify", tmp_path / name, "--json", *arguments)
            assert (code, strict(out)["damaged"]) == (int(damaged), int(damaged)), (name, limit)
            assert run("bench", tmp_path / name, "--repeats", "1", *arguments)[0] == int(damaged)
    assert run("verify", tmp_path / "plain.tar", "--max-pixels", "0")[0] == 2


def test_info_and_bench_name_the_libraries_used(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        writer.write(Record("k", {"jpg": JPEG}))
    for command in ("info", "bench"):
        more = ["--repeats", "1"] if command == "bench" else []
        facts = strict(run(command, tmp_path / "d.lmdb", "--json", *more)[1])
        assert set(facts["engines"]) == {"JPEGs decoded", "shrunk", "checksums"}
        assert all(name and version[0].isdigit() for name, version in map(str.split, facts["engines"].values()))
        out = run(command, tmp_path / "d.lmdb", *more)[1]
        assert all(name in out for name in facts["engines"].values())


def test_fields_can_be_named(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        writer.write(Record("k", {"jpg": JPEG}))
    np.save(tmp_path / "x.npy", np.zeros(3))
    for command in ("info", "verify"):
        assert run(command, tmp_path / "d.lmdb", "--image-field", "jpg", "--label-field", "cls")[0] in (0, 1)
        assert run(command, tmp_path / "d.lmdb", "--image-field")[0] == 2
