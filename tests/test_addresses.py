"""Addresses of other places: refused in words, before anything is looked for or made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fastdata
from fastdata.errors import OptionError
from fastdata.formats.addresses import check_local
from tests import samples

ADDRESSES = [
    "s3://bucket/x.tar", "gs://bucket/x-{000..003}.tar", "https://host/x.tar", "http://host/*.tar", "hf://a/b",
    "s3:/bucket/x.tar", "pipe:cat x.tar", "x.tar::y.tar", "hdfs://host/x.lmdb", "file:///x.tar",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_they_are_refused_by_everything_that_opens(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ways = [fastdata.open, fastdata.ImageDataset, fastdata.ImageStream, fastdata.DataLoader, check_local]
    for given in (address, [address], Path(address)):
        for way in ways[: 4 if isinstance(given, str) else 1]:
            with pytest.raises(OptionError, match=r"remote addresses are not read yet: copy|list of paths|plain path"):
                way(given)  # type: ignore[operator]
    assert os.listdir(tmp_path) == []


def test_what_they_stand_for_is_told() -> None:
    with pytest.raises(OptionError, match=r"plain path, .*/data/x\.tar"):
        check_local("file:///data/x.tar")
    with pytest.raises(OptionError, match="give a list of paths"):
        check_local("/data/x.tar::/data/y.tar")


def test_names_that_only_look_like_them_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "run::1").mkdir(parents=True)
    for folder in ("s3:/run::1", f"{tmp_path}/s3:/run::1"):
        path = samples.write(Path(folder), "tar", overwrite=True)
        for spelling in (path, path.replace("s3:/", "s3://"), f"{folder}/*.tar"):
            assert samples.read(spelling) == samples.expected()
        check_local(f"{folder}/new.lmdb")
    Path(path).rename(tmp_path / "pipe:a::b.tar")
    assert samples.read("pipe:a::b.tar") == samples.expected()
    for plain in ("x.tar", "/nowhere/at/all", "c:/x.tar", "a:b.tar", "x{0..3}.tar", "a\0b", ""):
        check_local(plain)
