"""What decoders say of damaged images reaches loaders and data sets with the key, bounded, and never the terminal."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata
from fastdata.codec import jpeg
from fastdata.datasets import remarks
from tests import images
from tests.command import run as run_command
from tests.test_decoder_output import noisy_cmyk, noisy_jpeg, noisy_png

GOOD = images.saved(images.photo(160, 120, 5), "jpeg")
SAID = {"jpg/7": "extraneous bytes", "png/3": "invalid with alpha", "cmyk/5": "extraneous bytes", "end/9": "end marker"}


@pytest.fixture
def noisy(tmp_path: Path) -> str:
    """Twenty images, of which a decoder complains about four."""
    odd = {"jpg/7": noisy_jpeg(), "png/3": noisy_png(), "cmyk/5": noisy_cmyk(), "end/9": GOOD[:-2]}
    numbers = {int(key.partition("/")[2]): key for key in odd}
    path = str(tmp_path / "noisy.lmdb")
    with fastdata.create(path) as writer:
        for number in range(20):
            key = numbers.get(number, f"good/{number}")
            writer.write(fastdata.Record(key, {"png" if key == "png/3" else "jpg": odd.get(key, GOOD), "cls": b"0"}))
    return path


def assert_said(warnings: list[tuple[str, str]]) -> None:
    assert {key for key, _ in warnings} == set(SAID)
    for key, message in warnings:
        assert SAID[key] in message
        assert "\n" not in message


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"},
        {"num_workers": 2, "multiprocessing_context": "spawn"},
    ],
    ids=["caller", "fork", "threads", "spawn"],
)  # fmt: skip
@pytest.mark.parametrize("transform", [None, fastdata.CenterCrop(64), [fastdata.CenterCrop(64), np.negative]])
def test_a_loader_reports_them_in_order(
    noisy: str, options: dict[str, Any], transform: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with fastdata.DataLoader(noisy, 4, transform=transform, **options) as loader:
        batches = iter(loader)
        next(batches)
        assert [key for key, _ in loader.warnings] == ["png/3"]  # of batches that were handed out
        for _ in batches:
            pass
        assert [key for key, _ in loader.warnings] == ["png/3", "cmyk/5", "jpg/7", "end/9"]
        assert_said(loader.warnings)
        assert loader.warnings.left_out == 0
        for _ in loader:
            pass
        assert len(loader.warnings) == 8  # once a record and epoch
    assert capfd.readouterr() == ("", "")


def test_a_record_that_comes_twice_is_reported_once(noisy: str) -> None:
    with fastdata.DataLoader(noisy, 3, indices=[7, 7, 7, 1], num_workers=0) as loader:
        list(loader)
        assert [key for key, _ in loader.warnings] == ["jpg/7"]


def test_samples_for_collate_fn_and_replacements(noisy: str) -> None:
    for workers in (0, 2):
        options: dict[str, Any] = {"num_workers": workers, "collate_fn": len, "on_error": "skip"}
        with fastdata.DataLoader(noisy, 4, **options) as loader:
            assert sum(loader) == 20
            assert_said(loader.warnings)


def test_there_are_never_more_than_a_thousand(noisy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remarks, "_MOST", 3)
    with fastdata.DataLoader(noisy, 4, num_workers=0) as loader:
        list(loader)
        list(loader)
        assert ([key for key, _ in loader.warnings], loader.warnings.left_out) == (["png/3", "cmyk/5", "jpg/7"], 5)


@pytest.mark.parametrize("fast", [True, False])
def test_data_sets_tell_them(
    noisy: str, fast: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fast:
        monkeypatch.setattr(jpeg, "_simplejpeg", lambda: None)
    dataset, stream = fastdata.ImageDataset(noisy), fastdata.ImageStream(noisy)
    for _ in range(2):
        assert len(list(dataset)) == 20  # type: ignore[call-overload]
        assert len(list(stream)) == 20
    for one in (dataset, stream, pickle.loads(pickle.dumps(dataset))):
        assert len(one.warnings) == 4  # once a record
        assert_said(one.warnings)
    list(torch.utils.data.DataLoader(dataset, None, num_workers=1))
    assert capfd.readouterr() == ("", "")


def test_verify_lists_them_and_finds_no_damage(noisy: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command("verify", noisy, "--quiet")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sorted(line.split(": ")[1] for line in lines[:-1]) == sorted(SAID)
    assert all(line.startswith("warning: ") for line in lines[:-1])
    assert lines[-1].startswith("20 records, no damage found, 4 warnings (")
    code, out, _ = run_command("verify", noisy, "--json", "--workers", "4")
    facts = json.loads(out)
    assert (code, facts["damaged"], facts["problems"]) == (0, 0, [])
    assert {warning["name"] for warning in facts["warnings"]} == set(SAID)
    assert run_command("bench", noisy, "--repeats", "1", "--json")[2] == ""
    assert capfd.readouterr() == ("", "")


def test_verify_counts_damage_beside_warnings(tmp_path: Path) -> None:
    path = str(tmp_path / "both.lmdb")
    with fastdata.create(path) as writer:
        writer.write(fastdata.Record("noisy", {"jpg": noisy_jpeg()}))
        writer.write(fastdata.Record("cut", {"jpg": GOOD[: len(GOOD) // 2] + b"\xff\xd9"}))
    code, out, _ = run_command("verify", path, "--quiet")
    assert code == 1
    assert "warning: noisy: field 'jpg': the decoder says" in out
    assert "\ncut: field 'jpg': the JPEG has fewer coded data than pixels" in f"\n{out}"
    assert "1 damaged of 2 records, 1 problem, 1 warning (" in out
