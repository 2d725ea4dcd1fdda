"""`fastdata info`, `verify` and `bench`: what they say of every format, of damage and of what is no data set."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

import fastdata
from fastdata.cli import terminal
from tests import images
from tests.command import FORMATS, pack, run, strict


@pytest.mark.parametrize("name", [*FORMATS, "folder"])
def test_info_of_every_format(photo_folder: Path, tmp_path: Path, name: str) -> None:
    path = photo_folder
    if name != "folder":
        path = tmp_path / FORMATS[name]
        run("convert", photo_folder, path, "--quiet", "--workers", "1", "--resize", "32")
    facts = strict(run("info", path, "--json")[1])
    assert facts["format"] == name
    assert facts["count"] == facts["images"]["count"] == 12
    assert facts["classes"] == [{"number": i, "name": n, "count": 4} for i, n in enumerate(("cat", "dog", "zebra"))]
    sizes = facts["images"]
    assert sum(row["count"] for row in sizes["histogram"]) == 12
    assert (
        sizes["histogram"][0]["from"]
        <= sizes["min"]
        <= sizes["median"]
        <= sizes["max"]
        < sizes["histogram"][-1]["below"]
    )
    assert bool(facts["fingerprint"]) == (name != "folder")
    assert facts["options"].get("resize") == (None if name == "folder" else 32)
    code, out, err = run("info", path)
    assert (code, err) == (0, "")
    for message in ("12", "zebra", "image sizes", name):
        assert message in out


def test_info_of_a_foreign_tar(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "foreign.tar", "w") as tar:
        for number in range(3):
            for kind, blob in (
                ("jpg", images.jpeg(images.photo(20, 20, number))),
                ("cls", b"%d" % (number % 2 * 1000)),
            ):
                member = tarfile.TarInfo(f"{number}.{kind}")
                member.size = len(blob)
                tar.addfile(member, io.BytesIO(blob))
    facts = strict(run("info", tmp_path / "foreign.tar", "--json")[1])
    assert (facts["count"], facts["fingerprint"]) == (3, "")
    assert [(entry["number"], entry["count"]) for entry in facts["classes"]] == [(0, 2), (1000, 1)]


def test_a_long_class_table_is_cut_for_a_person_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"class{number:03d}" for number in range(60)]
    with fastdata.create(tmp_path / "many.lmdb", classes=names) as writer:
        writer.write(fastdata.Record("a", {"jpg": b"x", "cls": b"0"}))
    assert "class059" in run("info", tmp_path / "many.lmdb")[1]
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    out = run("info", tmp_path / "many.lmdb")[1]
    assert "class059" not in out
    assert "40 more classes" in out
    assert len(strict(run("info", tmp_path / "many.lmdb", "--json")[1])["classes"]) == 60


def test_class_names_are_not_markup(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "odd.h5", classes=["[red]cat[/red]", "a\nb"]) as writer:
        writer.write(fastdata.Record("a", {"jpg": b"x", "cls": b"0"}))
    out = run("info", tmp_path / "odd.h5")[1]
    assert "[red]cat[/red]" in out
    assert r"a\nb" in out


@pytest.mark.parametrize("command", ["info", "verify", "bench"])
def test_paths_that_are_not_a_data_set(tmp_path: Path, command: str) -> None:
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for name in ("missing.lmdb", "text.txt", "empty"):
        code, out, err = run(command, tmp_path / name)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("error: ")
        assert name in err


@pytest.mark.parametrize("name", FORMATS)
def test_verify_names_what_is_damaged(photo_folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / FORMATS[name]
    run("convert", photo_folder, target, "--quiet", "--workers", "1")
    code, out, err = run("verify", target, "--quiet")
    assert (code, err) == (0, "")
    assert "12 records, no damage found" in out
    with fastdata.open(target) as reader:
        key, blob = reader.keys[5], bytes(reader.image(5)[1])
    file = target / "data.mdb" if name == "lmdb" else target
    content = bytearray(file.read_bytes())
    middle = content.find(blob) + len(blob) // 2
    content[middle] ^= 0xFF
    file.write_bytes(content)
    code, out, err = run("verify", target, "--quiet")
    assert (code, err) == (1, "")
    assert out.splitlines()[0].startswith(f"{key}: ")
    assert "1 damaged of 12 records" in out
    code, out, _err = run("verify", target, "--json")
    facts = strict(out)
    assert code == facts["damaged"] == 1
    assert {entry["name"] for entry in facts["problems"]} == {key}


def test_verify_decodes_and_parses_what_checksums_let_pass(tmp_path: Path) -> None:
    whole = images.jpeg(images.photo(40, 30))
    with fastdata.create(tmp_path / "mixed.tar") as writer:
        writer.write(fastdata.Record("good", {"jpg": whole, "mask.png": images.png(images.photo(4, 4)), "json": b"{}"}))
        writer.write(fastdata.Record("cut", {"jpg": whole[: len(whole) // 2]}))
        writer.write(fastdata.Record("mask", {"jpg": whole, "mask.png": b"\x89PNG\r\n\x1a\nand no more"}))
        writer.write(fastdata.Record("meta", {"jpg": whole, "json": b"{"}))
        writer.write(fastdata.Record("nothing", {"txt": b"message"}))
    code, out, _err = run("verify", tmp_path / "mixed.tar", "--json", "--workers", "2")
    problems = {entry["name"]: entry["problem"] for entry in strict(out)["problems"]}
    assert code == 1
    assert sorted(problems) == ["cut", "mask", "meta", "nothing"]
    assert "'mask.png'" in problems["mask"]
    assert "no image" in problems["nothing"]


def test_verify_accepts_what_was_kept_on_purpose(photo_folder: Path, tmp_path: Path) -> None:
    whole = images.jpeg(images.photo(60, 50))
    (photo_folder / "cat" / "cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    target = tmp_path / "out.lmdb"
    assert run("convert", photo_folder, target, "--quiet", "--encode", "keep", "--keep-damaged")[:2] == (0, "")
    assert run("verify", target, "--quiet")[0] == 0
    assert run("bench", target, "--repeats", "1")[0] == 0


def test_bench_prints_figures_with_their_circumstances(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    code, out, err = run("bench", packed, "--repeats", "2", "--workers", "2", "--json")
    assert (code, err) == (0, "")
    facts = strict(out)
    assert [figure["what"].split(",")[0] for figure in facts["figures"]] == ["read", "read", "decode"]
    for figure in facts["figures"]:
        spread = figure["seconds_per_record"]
        assert 0 < spread["low"] <= spread["median"] <= spread["high"]
        assert spread["repeats"] == 2
    assert facts["cache_state"].startswith("warm")
    assert facts["machine"]["cores"] >= 1
    assert {"python", "numpy", "opencv", "fastdata"} <= set(facts["versions"])
    out = run("bench", packed, "--repeats", "1")[1]
    for message in ("records/s", "decode", "warm", "opencv"):
        assert message in out


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system cannot drop cached pages")
def test_bench_cold(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    code, out, _err = run("bench", packed, "--repeats", "1", "--cold", "--json")
    assert code == 0
    assert strict(out)["cache_state"].startswith("cold")


def test_bench_with_the_ram_cache(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    code, out, err = run("bench", packed, "--repeats", "1", "--cache", "ram", "--json")
    assert code == 0
    assert strict(out)["cache_fill_seconds"] > 0
    assert err.count("cache: ") == 1  # filled once, for all figures
