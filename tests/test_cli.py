"""The command as a person uses it: help, wrong usage, and conversion with its exit codes and message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastdata
from fastdata.cli import terminal
from tests import images
from tests.command import FORMATS, pack, run, strict


def test_help_names_the_commands() -> None:
    for flag in ("--help", "-h"):
        code, out, err = run(flag)
        assert (code, err) == (0, "")
        for name in ("convert", "info", "verify", "bench", "--version"):
            assert name in out


@pytest.mark.parametrize("name", ["convert", "info", "verify", "bench"])
def test_each_command_has_help(name: str) -> None:
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert f"Usage: fastdata {name} " in out


def test_convert_offers_the_whole_synopsis() -> None:
    out = run("convert", "--help")[1]
    options = "format resize resize-mode upscale pad-color encode quality optimize alpha max-pixels keep-damaged"
    for option in (options + " class-order shuffle seed shard-size workers overwrite report quiet").split():
        assert f"--{option} " in out
    for choices in ("lmdb|hdf5|tar", "shorter|longer|exact|crop|pad", "jpeg|png|webp|bmp|raw|keep", "white|black|drop"):
        assert choices in out


def test_version() -> None:
    assert run("--version") == (0, f"fastdata {fastdata.__version__}\n", "")


def test_python_m_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "fastdata", "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"fastdata {fastdata.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["bench", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    heavy = ("torch", "cv2", "numpy", "lmdb", "h5py", "PIL", "webdataset", "rich")
    code = f"import sys; from fastdata.cli import main; main({arguments!r}); "
    code += f"print(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage"),
        (["verfy", "x"], "verify"),
        (["convert", "only-one"], "DST"),
        (["convert", "a", "b", "--no-such-option"], "--no-such-option"),
        (["info"], "PATH"),
        (["verify", "x", "--workers", "0"], "0"),
        (["bench", "x", "--repeats", "many"], "many"),
        (["bench", "x", "--cache", "disk"], "'ram'"),
        (["bench", "x", "--cache", "ram", "--cold"], "exclude"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert message in (err or out)


@pytest.mark.parametrize(
    ("option", "value", "would_do"),
    [
        ("--format", "zip", "hdf5"),
        ("--resize", "0", "1"),
        ("--resize", "-3", "1"),
        ("--resize", "wide", "integer"),
        ("--resize-mode", "fit", "shorter"),
        ("--pad-color", "1,2", "255"),
        ("--pad-color", "0,0,256", "255"),
        ("--encode", "gif", "webp"),
        ("--quality", "101", "100"),
        ("--alpha", "grey", "white"),
        ("--max-pixels", "0", "1"),
        ("--class-order", "random", "natural"),
        ("--seed", "-1", "0"),
        ("--shard-size", "12 parsecs", "MB"),
        ("--workers", "0", "1"),
    ],
)
def test_wrong_values_are_named_with_what_would_do(
    photo_folder: Path, tmp_path: Path, option: str, value: str, would_do: str
) -> None:
    before = sorted(os.listdir(tmp_path))
    target = tmp_path / ("out" if option == "--format" else "out.lmdb")
    code, out, err = run("convert", photo_folder, target, option, value)
    assert (code, out) == (2, "")
    assert value.split(",")[-1] in err
    assert option.removeprefix("--") in err
    assert would_do in err
    assert sorted(os.listdir(tmp_path)) == before


def test_a_suffix_that_names_no_format(photo_folder: Path, tmp_path: Path) -> None:
    code, out, err = run("convert", photo_folder, tmp_path / "out.zip")
    assert (code, out) == (2, "")
    assert ".lmdb" in err
    assert "--format tar" in err


@pytest.mark.parametrize("name", FORMATS)
def test_convert_reports_what_it_did(photo_folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / FORMATS[name]
    code, out, _err = run("convert", photo_folder, target, "--resize", "32", "--workers", "1")
    assert code == 0
    rows = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert rows["kept"] == "12 images"
    assert rows["rejected"] == "0"
    assert rows["classes"] == "3"
    assert "->" in rows["size"]
    assert "images/s" in rows["time"]
    with fastdata.open(target) as reader:
        assert len(reader) == 12
        assert reader.manifest.format == name


def test_every_option_reaches_convert(photo_folder: Path, tmp_path: Path) -> None:
    target, report = tmp_path / "shards", tmp_path / "report.json"
    chosen = (
        "--format tar --resize 40 --resize-mode pad --upscale --pad-color 9,8,7 --encode webp --quality 77 --optimize "
        "--alpha black --max-pixels 1000000 --keep-damaged --class-order natural --shuffle --seed 5 "
        "--shard-size 64KiB --workers 2 --quiet"
    )
    assert run("convert", photo_folder, target, *chosen.split(), "--report", report) == (0, "", "")
    with fastdata.open(target) as reader:
        options = reader.manifest.options
        assert reader[0].image_field == "webp"
    expected = {
        "resize": 40, "resize_mode": "pad", "upscale": True, "pad_color": [9, 8, 7], "encode": "webp", "quality": 77,
        "optimize": True,
        "alpha": "black", "max_pixels": 1_000_000, "keep_damaged": True, "class_order": "natural", "shuffle": True,
        "seed": 5, "shard_size": 65_536,
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected
    assert strict(report.read_text())["kept"] == 12


def test_rejected_inputs_are_named_and_the_code_is_3(photo_folder: Path, tmp_path: Path) -> None:
    (photo_folder / "cat" / "broken.jpg").write_bytes(images.jpeg(images.photo(40, 30))[:200])
    (photo_folder / "cat" / "notes.txt").write_text("no image")
    target, report = tmp_path / "out.lmdb", tmp_path / "report.json"
    code, out, err = run("convert", photo_folder, target, "--report", report, "--workers", "1")
    assert code == 3
    assert "12 images" in out
    assert [line for line in err.splitlines() if "cat/broken.jpg" in line]
    facts = strict(report.read_text())
    assert [entry["path"] for entry in facts["rejected"]] == ["cat/broken.jpg"]
    assert [entry["path"] for entry in facts["ignored"]] == ["cat/notes.txt"]
    assert run("convert", photo_folder, target, "--overwrite", "--quiet", "--workers", "1")[:2] == (3, "")


def test_the_list_of_rejected_inputs_is_bounded(photo_folder: Path, tmp_path: Path) -> None:
    for number in range(terminal.SHOWN + 7):
        (photo_folder / "cat" / f"empty{number:02d}.jpg").write_bytes(b"")
    code, _out, err = run("convert", photo_folder, tmp_path / "out.lmdb", "--quiet", "--workers", "1")
    assert code == 3
    lines = err.splitlines()
    assert len([line for line in lines if "empty" in line]) == terminal.SHOWN
    assert "7 more" in lines[-1]
    assert "--report" in lines[-1]


def test_an_output_that_exists_stays_unless_overwritten(photo_folder: Path, tmp_path: Path) -> None:
    packed = pack(photo_folder, tmp_path / "packed.lmdb")
    before = {path.name: path.read_bytes() for path in packed.iterdir()}
    code, out, err = run("convert", photo_folder, packed, "--resize", "16", "--workers", "1")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: ")
    assert "overwrite" in err
    assert {path.name: path.read_bytes() for path in packed.iterdir()} == before
    assert run("convert", photo_folder, packed, "--resize", "16", "--workers", "1", "--overwrite")[0] == 0
    with fastdata.open(packed) as reader:
        assert reader.manifest.options["resize"] == 16


def test_nothing_usable_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in ("empty", "missing"):
        code, out, err = run("convert", tmp_path / source, tmp_path / "out.lmdb", "--quiet")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("error: ")
        assert source in err
    assert not (tmp_path / "out.lmdb").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
def test_odd_names_are_printed_safely(photo_folder: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"a\nb\x1b[31m\xff.jpg")
    (photo_folder / "cat" / name).write_bytes(b"")
    code, _out, err = run("convert", photo_folder, tmp_path / "out.lmdb", "--quiet", "--workers", "1")
    assert (code, err.count("\n")) == (3, 1)
    assert "\x1b" not in err
    assert r"a\nb\x1b[31m\xff.jpg" in err
