"""Damaged data sets: refused with an error, or reported by `verify`; never a crash, never silently wrong data."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import lmdb
import pytest

import fastdata
from fastdata import Record
from fastdata.errors import FormatError
from tests import samples

pytestmark = pytest.mark.slow

LITTLE = tuple(samples.record(number, size) for number, size in enumerate((40, 700, 0, 2500, 90, 300)))


@pytest.fixture(params=samples.LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def path(tmp_path: Path, layout: str) -> str:
    return samples.write(tmp_path, layout, LITTLE, shard_size=5000)


def members(path: str) -> list[Path]:
    root = Path(path)
    return [root] if root.is_file() else sorted(root.iterdir())


def outcome(path: str) -> str:
    """ "refused", "named" by verify, or "same": everything a reader returns is as it was written."""
    try:
        with fastdata.open(path) as reader:
            try:
                same = samples.content(reader) == samples.expected(LITTLE)
            except FormatError:
                same = False
            same &= reader.classes == samples.CLASSES and reader.labels.tolist() == [item.label for item in LITTLE]
            named = list(reader.verify())
    except FormatError as error:
        return "refused" if path in str(error) else f"refused without the path: {error}"
    if named:
        assert all(where and message for where, message in named)
        return "named"
    assert same, "wrong data in silence"
    return "same"


def test_every_flipped_byte_is_noticed_or_harmless(path: str, layout: str) -> None:
    rng = random.Random(0)
    unnoticed = []
    for file in members(path):
        whole = file.read_bytes()
        places = set(range(0, len(whole), max(1, len(whole) // 250))) | set(range(min(len(whole), 60)))
        places |= set(range(max(0, len(whole) - 60), len(whole)))
        for place in sorted(places):
            flipped = bytearray(whole)
            flipped[place] ^= rng.choice([1, 2, 8, 64, 128, 255])
            file.write_bytes(flipped)
            if outcome(path) == "same" and whole[place] not in b"\0 \n":
                unnoticed.append((file.name, place, whole[max(0, place - 8) : place + 8]))
        file.write_bytes(whole)
    assert not unnoticed, "only padding may change without being reported"
    assert outcome(path) == "same"


def test_a_flipped_payload_byte_names_the_key(path: str) -> None:
    wanted = LITTLE[3].fields["jpg"]
    for file in members(path):
        whole = file.read_bytes()
        place = whole.find(wanted)
        if place >= 0:
            file.write_bytes(whole[: place + 100] + bytes([whole[place + 100] ^ 16]) + whole[place + 101 :])
    with fastdata.open(path) as reader:
        found = list(reader.verify())
    assert [key for key, _ in found] == [LITTLE[3].key]
    assert "'jpg' has changed" in found[0][1]


@pytest.mark.parametrize("change", [-1, -700, +1, +512])
def test_another_length_is_refused(path: str, change: int) -> None:
    for file in members(path):
        whole = file.read_bytes()
        file.write_bytes(whole[:change] if change < 0 else whole + b"\n" * change)
        newline_only = file.name == "manifest.json" and change in (-1, 1, 512)
        assert outcome(path) == ("same" if newline_only else "refused"), file.name
        file.write_bytes(b"")
        assert outcome(path) == "refused", file.name
        file.write_bytes(whole)
    assert outcome(path) == "same"


def test_a_file_that_is_cut_after_open_is_refused_when_it_is_mapped(tmp_path: Path) -> None:
    for layout in samples.LAYOUTS:
        path = samples.write(tmp_path, layout, LITTLE)
        with fastdata.open(path) as reader:
            data = next(file for file in members(path) if file.suffix in (".mdb", ".tar", ".h5"))
            os.truncate(data, data.stat().st_size - 1)
            with pytest.raises(FormatError, match=r"was cut or changed|was replaced"):
                samples.content(reader)


@pytest.mark.parametrize("layout", ["lmdb", "shards"])
def test_a_missing_file_is_named(path: str) -> None:
    for file in members(path):
        whole = file.read_bytes()
        file.unlink()
        with pytest.raises(FormatError, match=r"missing|unfinished|cannot be read|copy") as caught:
            fastdata.open(path)
        assert path in str(caught.value)
        file.write_bytes(whole)


def test_a_shard_alone_is_refused(tmp_path: Path) -> None:
    """Also one whose first header is a PAX record, for a name that is not ASCII."""
    records = [Record(f"{name}/{i}", {"jpg": samples.payload(i, 900)}) for name in ("é", "a") for i in range(3)]
    path = Path(samples.write(tmp_path, "shards", records, shard_size=2500))
    shards = sorted(path.glob("*.tar"))
    assert len(shards) > 2
    alone = tmp_path / "alone"
    alone.mkdir()
    for shard in shards:
        shutil.copy(shard, alone)
        for place in (str(alone), str(alone / shard.name), [str(alone / shard.name)], f"{alone}/*.tar"):
            with pytest.raises(FormatError, match=r"written by fastdata, but its manifest.json is missing"):
                fastdata.open(place)
        (alone / shard.name).unlink()


def test_a_shard_of_another_conversion_is_refused(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "shards"))
    stray = path / "stray.tar"
    shutil.copy(sorted(path.glob("*.tar"))[0], stray)
    with pytest.raises(FormatError, match="does not list"):
        fastdata.open(stray)


def test_one_tar_that_others_appended_to_is_refused(tmp_path: Path) -> None:
    import tarfile

    path = samples.write(tmp_path, "tar", LITTLE)
    (tmp_path / "more.txt").write_text("more")
    with tarfile.open(path, "a") as tar:
        tar.add(tmp_path / "more.txt", "more.txt")
    assert outcome(path) == "refused"


@pytest.mark.parametrize("how", ["put", "delete", "compact"])
def test_an_lmdb_that_was_written_to_is_refused(tmp_path: Path, how: str) -> None:
    path = samples.write(tmp_path, "lmdb", LITTLE)
    with lmdb.open(path, map_size=1 << 24) as environment:
        if how == "compact":
            (tmp_path / "copy").mkdir()
            environment.copy(str(tmp_path / "copy"), compact=True)
            shutil.copy(tmp_path / "copy" / "data.mdb", tmp_path / "data.mdb")
        else:
            with environment.begin(write=True) as transaction:
                for name in (b"cat/3.jpg", b"cat/3.cls"):  # a record, so that none without an image is left
                    transaction.put(b"x/" + name, b"1") if how == "put" else transaction.delete(name)
    if how == "compact":
        shutil.copy(tmp_path / "data.mdb", path)
    with pytest.raises(FormatError, match=r"changed after it was written|was written to after"):
        fastdata.open(path)
    os.unlink(os.path.join(path, "manifest.json"))
    os.unlink(os.path.join(path, "index.fastdata"))
    with fastdata.open(path) as reader:  # as the message says, it is a foreign LMDB now
        assert reader[reader.find("dog/1")].fields["jpg"] == LITTLE[1].fields["jpg"]


def test_a_newer_layout_says_what_to_do(path: str, layout: str) -> None:
    for file in members(path):
        whole = file.read_bytes()
        file.write_bytes(whole.replace(b'{\n "fastdata": 1,', b'{\n "fastdata": 2,'))
    with pytest.raises(FormatError, match=r"layout version 2.*upgrade fastdata"):
        fastdata.open(path)
