"""Data of ours whose first bytes are lost: read as ours or refused by name, never skipped or taken for foreign."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata.errors import FormatError
from tests import samples

BLOCK = 512


def zeros(blob: bytes, size: int) -> bytes:
    return bytes(size) + blob[size:]


def noise(blob: bytes, size: int) -> bytes:
    return random.Random(size).randbytes(size) + blob[size:]


def cut(blob: bytes, size: int) -> bytes:
    return blob[size:]


DAMAGE: list[Callable[[bytes, int], bytes]] = [zeros, noise, cut]
SIZES = [1, 300, BLOCK, 3 * BLOCK, 5000]


def outcome(path: Any, wanted: list[str]) -> str:
    """ "named" by verify, or "refused" with the name; the records are never less than there are."""
    try:
        with fastdata.open(path) as reader:
            assert list(reader.keys) == wanted
            named = list(reader.verify())
    except FormatError as error:
        message = str(error)
        assert str(path) in message or Path(message.split(":")[0]).exists()
        return "refused"
    assert named, "damage that was not reported"
    return "named"


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_shard_that_is_named_by_itself(damage: Callable[[bytes, int], bytes], which: int, tmp_path: Path) -> None:
    folder = Path(samples.write(tmp_path, "shards"))
    shards = sorted(folder.glob("*.tar"))
    with fastdata.open(folder) as reader:
        wanted = list(reader.keys)
    with fastdata.open(shards[which]) as reader:
        part = list(reader.keys)
    whole = shards[which].read_bytes()
    for size in SIZES:
        shards[which].write_bytes(damage(whole, size))
        places: list[Any] = [f"{folder}/*.tar", f"{folder}/data-{{000000..{len(shards) - 1:06d}}}.tar"]
        found = {outcome(place, wanted) for place in [*places, [str(shard) for shard in shards], str(folder)]}
        assert len(found) == 1, (size, found)
        assert outcome(shards[which], part) == found.pop()


def test_the_only_shard(tmp_path: Path) -> None:
    folder = Path(samples.write(tmp_path, "shards", shard_size=10**9))
    (shard,) = folder.glob("*.tar")
    shard.write_bytes(zeros(shard.read_bytes(), BLOCK))
    assert outcome(shard, [item.key for item in samples.RECORDS]) == "named"


@pytest.mark.parametrize("damage", DAMAGE)
def test_shards_without_their_manifest(damage: Callable[[bytes, int], bytes], tmp_path: Path) -> None:
    folder = Path(samples.write(tmp_path, "shards"))
    for name in ("manifest.json", "index.fastdata"):
        (folder / name).unlink()
    shards = sorted(folder.glob("*.tar"))
    whole = shards[1].read_bytes()
    for size in SIZES:
        shards[1].write_bytes(damage(whole, size))
        for place in (shards[1], folder, f"{folder}/*.tar", [str(shard) for shard in shards]):
            with pytest.raises(FormatError, match=r"data-00000\d\.tar"):
                fastdata.open(place)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("layout", ["tar", "lmdb", "hdf5"])
def test_data_sets_of_one_file(damage: Callable[[bytes, int], bytes], layout: str, tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, layout))
    file = path / "data.mdb" if layout == "lmdb" else path
    whole = file.read_bytes()
    for size in SIZES:
        file.write_bytes(damage(whole, size))
        if file.read_bytes() == whole:  # it begins with a zero
            continue
        wanted = "named" if damage is not cut and layout == "tar" else "refused"
        assert outcome(path, [item.key for item in samples.RECORDS]) == wanted
        if layout == "tar":
            file.write_bytes(damage(whole, size)[:-2000])  # its index is lost too
            with pytest.raises(FormatError, match=path.name):
                fastdata.open(path)


def test_the_data_file_of_a_data_set_is_the_data_set(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "lmdb"))
    with fastdata.open(path / "data.mdb") as reader:
        assert (reader.path, reader.classes) == (str(path), samples.CLASSES)
        assert samples.content(reader) == samples.expected()
    (path / "manifest.json").unlink()
    with pytest.raises(FormatError, match="unfinished or incomplete"):
        fastdata.open(path / "data.mdb")


def test_one_tar_of_any_name(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "tar")).rename(tmp_path / "renamed")
    path.write_bytes(zeros(path.read_bytes(), BLOCK))
    assert outcome(path, [item.key for item in samples.RECORDS]) == "named"


def test_a_foreign_tar_beside_shards_of_ours_is_read(tmp_path: Path) -> None:
    folder = Path(samples.write(tmp_path, "shards"))
    from tests.test_foreign_images import JPEG, write

    foreign = write(folder, "tar", {"a.jpg": JPEG}, "other")
    with fastdata.open(foreign) as reader:
        assert list(reader.keys) == ["a"]
    names = json.loads((folder / "manifest.json").read_bytes())["files"]
    with fastdata.open(f"{folder}/*.tar") as reader:
        assert len(reader) == len(samples.RECORDS) + 1
    assert all(entry["name"] != "other.tar" for entry in names)
