"""Options that could have no effect are refused, or warned of if the result is what was asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata.converters.options import ConvertOptions
from fastdata.errors import OptionError
from tests.command import run
from tests.test_convert import digest
from tests.test_convert import run as convert

IDLE: list[tuple[dict[str, Any], str]] = [
    ({"resize_mode": "crop"}, "without resize"),
    ({"resize_mode": "shorter"}, "without resize"),
    ({"upscale": True}, "without resize"),
    ({"pad_color": (1, 2, 3)}, "without resize"),
    ({"resize": 20, "pad_color": (0, 0, 0)}, "resize_mode 'shorter'"),
    ({"resize": 20, "resize_mode": "crop", "pad_color": (0, 0, 0)}, "resize_mode 'crop'"),
    ({"encode": "png", "quality": 90}, "encode 'png'"),
    ({"encode": "raw", "quality": 50}, "encode 'raw'"),
    ({"encode": "bmp", "quality": 50}, "encode 'bmp'"),
    ({"seed": 0}, "without shuffle"),
]


def as_words(options: dict[str, Any]) -> list[str]:
    """The same options as the command takes them."""
    message: list[str] = []
    for name, value in options.items():
        message.append("--" + name.replace("_", "-"))
        if value is not True:
            message.append(",".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return message


@pytest.mark.parametrize(("options", "message"), IDLE)
def test_an_option_without_effect_is_refused(
    photo_folder: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=f"has no effect.*{message}"):
        convert(photo_folder, tmp_path / "out.lmdb", **options)
    code, out, err = run("convert", photo_folder, tmp_path / "out.lmdb", "--quiet", *as_words(options))
    assert (code, out) == (2, "")
    assert "has no effect" in err
    assert os.listdir(tmp_path) == [photo_folder.name]


@pytest.mark.slow
def test_options_left_out_are_the_documented_ones_and_change_no_byte(photo_folder: Path, tmp_path: Path) -> None:
    convert(photo_folder, tmp_path / "a" / "out", format="tar", resize=30)
    said = {"resize_mode": "shorter", "quality": 90, "shard_size": "256MB"}
    convert(photo_folder, tmp_path / "b" / "out", format="tar", resize=30, **said)
    assert digest(tmp_path / "a" / "out") == digest(tmp_path / "b" / "out")
    with fastdata.open(tmp_path / "a" / "out") as reader:
        options = reader.manifest.options
    defaults = {"resize_mode": "shorter", "pad_color": [0, 0, 0], "quality": 90, "seed": 0, "shard_size": 256_000_000}
    assert {name: options[name] for name in defaults} == defaults


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar"])
def test_a_shard_size_where_there_are_no_shards(photo_folder: Path, tmp_path: Path, name: str) -> None:
    code, out, err = run("convert", photo_folder, tmp_path / name, "--shard-size", "1MB", "--quiet")
    assert (code, out) == (2, "")
    assert "shard_size (--shard-size) has no effect" in err
    assert "name a folder" in err
    assert os.listdir(tmp_path) == [photo_folder.name]
    report = convert(photo_folder, tmp_path / name, encode="keep", shard_size=10**6)  # a program may pass it to all
    assert [note.path for note in report.warnings if "shard_size" in note.reason] == ["."]


def test_what_happens_anyway_is_a_warning(photo_folder: Path, tmp_path: Path) -> None:
    chosen = {"resize": 20, "resize_mode": "exact", "upscale": True, "encode": "png", "optimize": True}
    report = convert(photo_folder, tmp_path / "out.tar", **chosen)
    assert [note.reason.partition(" ")[0] for note in report.warnings] == ["upscale", "optimize"]
    report = convert(photo_folder, tmp_path / "pad.tar", resize=20, resize_mode="pad", upscale=True, encode="png")
    assert report.warnings == []


@pytest.mark.parametrize("size", ["9" * 400, 2**63, "0", "1e3", "1e999 GB", -1, True, 1.5])
def test_sizes_that_no_shard_can_have(size: Any) -> None:
    with pytest.raises(OptionError, match="shard_size"):
        ConvertOptions(shard_size=size)
