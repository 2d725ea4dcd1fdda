"""Foreign tars: grouped as webdataset groups them, or refused with an error."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import pickle
import random
import tarfile
from pathlib import Path

import pytest

import fastdata
from fastdata.errors import FormatError
from tests import samples

MEMBERS = {
    "a/1.jpg": b"one", "a/1.cls": b"0", "a/2.JPG": b"two", "a/2.cls": b"1", "b.d/x.y/3.seg.png": b"three",
    "b.d/x.y/3.webp": b"3", "b.d/x.y/3.cls": b" 7\n", "empty.jpg": b"",
}  # fmt: skip
READ = {
    "a/1": {"jpg": b"one", "cls": b"0"}, "a/2": {"jpg": b"two", "cls": b"1"},
    "b.d/x.y/3": {"webp": b"3", "seg.png": b"three", "cls": b" 7\n"}, "empty": {"jpg": b""},
}  # fmt: skip


def pack(members: dict[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, blob in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            tar.addfile(info, io.BytesIO(blob))
    return out.getvalue()


def found(path: str | list[str]) -> dict[str, dict[str, bytes]]:
    with fastdata.open(path) as reader:
        assert list(reader.verify()) == []
        return {reader.keys[i]: dict(reader[i].fields) for i in range(len(reader))}


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    path = tmp_path / "foreign.tar"
    path.write_bytes(pack(MEMBERS))
    return path


def test_groups_as_webdataset_does(tar: Path) -> None:
    assert found(str(tar)) == READ
    with fastdata.open(tar) as reader:
        assert reader.labels.tolist() == [0, 1, 7, -1]
        assert reader.classes == ()
        assert (reader.manifest.format, reader.manifest.fingerprint) == ("tar", "")
        assert reader.path == str(tar)
        assert bytes(reader.image(1)[1]) == b"two"
    assert os.listdir(tar.parent) == [tar.name]  # nothing is ever written beside foreign data


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_kind_of_header(tmp_path: Path, kind: int) -> None:
    long = "d" * 90 + "/" + "f" * 60
    (tmp_path / "x.tar").write_bytes(pack({**MEMBERS, f"{long}.jpg": b"long", "ünï.jpg": b"u"}, kind))
    assert found(str(tmp_path / "x.tar")) == {**READ, long: {"jpg": b"long"}, "ünï": {"jpg": b"u"}}


def test_members_that_are_not_samples_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for kind, name in (
            (tarfile.DIRTYPE, "a"),
            (tarfile.DIRTYPE, "a.jpg"),
            (tarfile.SYMTYPE, "link.jpg"),
            (tarfile.FIFOTYPE, "p.jpg"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a/1.jpg"
            tar.addfile(info)
        for name in (".hidden.jpg", "a/.DS_Store", "a/._1.jpg", "README", "__meta__/x.jpg", "__info__", "__foo.jpg"):
            tar.addfile(tarfile.TarInfo(name))
    assert found(str(path)) == {"__foo": {"jpg": b""}}


def test_several_are_one(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"x-{number:06d}.tar").write_bytes(pack({f"{number}.jpg": b"%d" % number, f"{number}.cls": b"1"}))
    wanted = [str(number) for number in range(12)]
    shards = [str(tmp_path / f"x-{number:06d}.tar") for number in range(12)]
    for path in (str(tmp_path), shards, f"{tmp_path}/x-*.tar", f"{tmp_path}/x-{{000000..000011}}.tar"):
        with fastdata.open(path) as reader, pickle.loads(pickle.dumps(reader)) as copy:
            for one in (reader, copy):
                assert list(one.keys) == wanted
                assert [one[i].fields["jpg"].decode() for i in range(12)] == wanted
                assert one.labels.tolist() == [1] * 12
                assert one.find("7") == 7


def test_a_folder_with_the_manifest_of_another_tool(tar: Path) -> None:
    (tar.parent / "manifest.json").write_text('{"name": "something else"}')
    assert found(str(tar.parent)) == READ
    assert found(str(tar)) == READ


def test_a_cut_tar_is_refused_wherever_it_was_cut(tar: Path) -> None:
    whole = tar.read_bytes()
    end = len(whole.rstrip(b"\0"))
    for length in {0, 1, 511, 512, 513, *range(1024, end, 512), *range(600, end, 357)}:
        tar.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"foreign\.tar: (not a readable tar file|cut)"):
            fastdata.open(tar)


def test_damaged_headers_are_refused(tar: Path) -> None:
    whole = tar.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(len(whole))] = rng.randrange(256)
        tar.write_bytes(damaged)
        try:
            names = set(found(str(tar)))
        except FormatError as error:
            message = str(error)
            assert "foreign.tar" in message
        else:
            assert names == set(READ)  # only blobs or filling were hit


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
@pytest.mark.parametrize("squeeze", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_compressed_tars_are_refused_with_advice(tmp_path: Path, suffix: str, squeeze: object) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(squeeze(pack(MEMBERS)))  # type: ignore[operator]
    with pytest.raises(FormatError, match="compressed"):
        fastdata.open(path)


def test_a_field_that_comes_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(pack({"a.jpg": b"1", "a.JPG": b"2"}))
    with pytest.raises(FormatError, match="'jpg' twice"):
        fastdata.open(tmp_path / "x.tar")


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    """Their bytes are not contiguous."""
    blob = bytearray(pack({"a.jpg": bytes(512)}, tarfile.GNU_FORMAT))
    blob[156:157] = tarfile.GNUTYPE_SPARSE
    blob[386:410] = b"%011o\0" % 0 + b"%011o\0" % 512
    blob[483:495] = b"%011o\0" % 4096
    blob[148:156] = b"%06o\0 " % (sum(blob[:148]) + 8 * 32 + sum(blob[156:512]))
    (tmp_path / "x.tar").write_bytes(blob)
    with pytest.raises(FormatError, match="holes"):
        fastdata.open(tmp_path / "x.tar")


def test_ours_and_foreign_in_one_list(tmp_path: Path, tar: Path) -> None:
    ours = samples.write(tmp_path, "tar")
    folder = samples.write(tmp_path, "shards")
    shards = sorted(str(path) for path in Path(folder).glob("*.tar"))
    places = [str(tar), shards[1], ours, shards[0], str(tar)]
    with fastdata.open(places) as reader, pickle.loads(pickle.dumps(reader)) as copy:
        parts = [fastdata.open(place) for place in places]
        wanted = [item for part in parts for item in samples.content(part)]
        for one in (reader, copy):
            assert samples.content(one) == wanted
            assert [one[-1 - i].key for i in range(len(one))] == [key for key, _, _ in wanted[::-1]]
            assert list(one.keys) == [key for key, _, _ in wanted]
            assert one.keys[3:-2:4] == list(one.keys)[3:-2:4]
            assert one.labels.tolist() == [label for part in parts for label in part.labels.tolist()]
            assert one.classes == samples.CLASSES
            assert one.find("empty") == 3
            assert one.find("dog/1") == next(i for i, item in enumerate(wanted) if item[0] == "dog/1")
            assert list(one.verify()) == []
            assert [one.size(i) for i in range(len(one))] == [sum(map(len, item[1].values())) for item in wanted]
            with pytest.raises(IndexError):
                one[len(one)]
            with pytest.raises(KeyError):
                one.find("nowhere")
        for part in parts:
            part.close()


def test_different_class_tables_are_refused(tmp_path: Path) -> None:
    places = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        places.append(samples.write(tmp_path / name, "tar", samples.RECORDS, classes=[f"{name}{i}" for i in range(3)]))
    with pytest.raises(FormatError, match="different class tables"):
        fastdata.open(places)
