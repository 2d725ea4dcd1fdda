"""Headers of tars: members where tarfile finds them, and an error in bounded time for false ones."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

import pytest

import fastdata
from fastdata.errors import FormatError
from fastdata.formats.tar_members import BLOCK, members, padded

JPEG = b"\xff\xd8\xff\xe0 some bytes"


def head(name: str, kind: bytes = b"0", size: int = 0, raw: bytes | None = None) -> bytes:
    """A header, with `raw` in its size field."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    if raw is not None:
        block[124:136] = raw
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def filled(blob: bytes) -> bytes:
    return blob.ljust(padded(len(blob)), b"\0")


def member(name: str, blob: bytes = JPEG, kind: bytes = b"0") -> bytes:
    return head(name, kind, len(blob)) + filled(blob)


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    blob = b""
    for key, value in records:
        bare = len(key) + len(value) + 3
        blob += b"%d %s=%s\n" % (bare + len(str(bare + len(str(bare)))), key, value)
    return member("p", blob, kind)


def large(number: int) -> bytes:
    return b"\x80" + number.to_bytes(11, "big")


def below(number: int) -> bytes:
    return b"\xff" + (2**88 - number).to_bytes(11, "big")


GOOD = member("a.jpg")
LIES = {
    "a PAX header of 2^62": head("z", b"x", raw=large(2**62)),
    "a name of 8 GiB": head("z", b"L", raw=large(2**33)),
    "a PAX header of 2^80": head("z", b"x", raw=large(2**80)),
    "a PAX header below zero": head("z", b"x", raw=below(512)),
    "a member below zero": head("z.jpg", raw=below(2**80)),
    "a member of minus one": head("z.jpg", raw=below(1)),
    "a global header of 2^62": head("z", b"g", raw=large(2**62)),
    "a link's name of 2^62": head("z", b"K", raw=large(2**62)),
    "no size": head("z.jpg", raw=b"no size here"),
    "a sparse map that is not there": pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")) + member("q.jpg"),
    "a sparse size that is none": pax((b"GNU.sparse.realsize", b"x")) + member("q.jpg"),
    "a size that is none": pax((b"size", b"x")) + member("q.jpg"),
    "a size of 5000 digits": pax((b"size", b"9" * 5000)) + member("q.jpg"),
    "a size below zero": pax((b"size", b"-1")) + member("q.jpg"),
    "a size beyond the file": pax((b"size", b"99999")) + member("q.jpg"),
    "3000 PAX headers": member("p", b"8 a=bc\n", b"x") * 3000,
    "3000 names": member("p", b"abc.jpg\0", b"L") * 3000,
    "a length of 5000 digits": member("p", b"9" * 5000 + b" a=b\n", b"x") + member("q.jpg"),
    "a length beyond the header": member("p", b"90 path=q.jpg\n", b"x") + member("q.jpg"),
    "a length of zero": member("p", b"0 path=q.jpg\n", b"x") + member("q.jpg"),
    "a record without a value": member("p", b"8 path\n\n", b"x") + member("q.jpg"),
    "a part of a member of another volume": member("q.jpg", kind=b"M"),
    "a member of no known type": member("q.jpg", kind=b"q"),
    "a hard link": head("q.jpg", b"1"),
    "more PAX than any file has": member("p", b"1" * (2 << 20), b"x") + member("q.jpg"),
}


@pytest.mark.parametrize("lie", LIES)
def test_false_headers_are_errors(lie: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(GOOD + LIES[lie] + member("b.jpg") + bytes(2 * BLOCK))
    with pytest.raises(FormatError, match=r"x\.tar: (not a readable tar file|cut in member|member 'q\.jpg' is)"):
        fastdata.open(path)


def test_a_header_without_its_member_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(GOOD + pax((b"path", b"b.jpg")) + bytes(2 * BLOCK))
    with pytest.raises(FormatError, match="without its member"):
        fastdata.open(path)


def test_a_global_header_is_read_once_however_many_members_follow(tmp_path: Path) -> None:
    """As `git archive` writes one; a PAX header of the member itself goes before it."""
    path = tmp_path / "x.tar"
    some = [(b"k%06d" % number, b"v") for number in range(20_000)]
    path.write_bytes(
        pax((b"comment", b"0123"), *some, kind=b"g")
        + b"".join(member(f"{number}.jpg", b"") for number in range(2000))
        + pax((b"path", b"named.jpg"))
        + GOOD
        + bytes(2 * BLOCK)
    )
    names = [one.name for one in members(str(path))]
    assert names == [*(f"{number}.jpg" for number in range(2000)), "named.jpg"]


def random_tar(rng: random.Random, kind: int) -> bytes:
    """Members of all types with names that are long, not ASCII, or in folders."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for number in range(rng.randrange(12)):
            most = 30 if kind == tarfile.USTAR_FORMAT else rng.choice([5, 60, 200])
            name = "".join(rng.choice("ab.-_ x/Ä日") for _ in range(rng.randrange(1, most))).strip("/")
            info = tarfile.TarInfo(f"{number}{name}")
            info.type = rng.choice([b"0", b"0", b"7", b"5", b"2"])
            info.size = 0 if info.type in b"52" else rng.choice([0, 1, 511, 512, 513, 3000])
            info.linkname = "l" * rng.choice([0, 5, 90]) if info.type == b"2" else ""
            info.uname, info.mtime = "ü", rng.choice([0, 5])
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    return out.getvalue()


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_lie_where_tarfile_finds_them(kind: int, tmp_path: Path) -> None:
    rng, path = random.Random(kind), tmp_path / "x.tar"
    for _ in range(40):
        path.write_bytes(random_tar(rng, kind))
        with tarfile.open(path) as tar:
            wanted = [(m.name, m.isreg(), m.offset_data, m.size) for m in tar if not m.isdir()]
        assert [(m.name, m.regular, m.offset, m.size) for m in members(str(path))] == wanted


@pytest.mark.slow
def test_damaged_headers_give_the_members_as_they_are_or_an_error(tmp_path: Path) -> None:
    """One byte changed at every position of two headers, a PAX header and its records."""
    path = tmp_path / "x.tar"
    whole = GOOD + pax((b"path", "b/ü.jpg".encode())) + member("p") + bytes(2 * BLOCK)
    path.write_bytes(whole)
    names = [one.name for one in members(str(path))]
    rng = random.Random(1)
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([rng.randrange(256)]) + whole[place + 1 :])
        try:
            found = [one.name for one in members(str(path))]
        except FormatError as error:
            message = str(error)
            assert "x.tar" in message
        else:
            assert len(found) == len(names)


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as out:
        for number in range(120):
            info = tarfile.TarInfo(f"{number:03d}.jpg")
            info.size = 3000
            out.addfile(info, io.BytesIO(JPEG * (3000 // len(JPEG) + 1)))
    return path


@pytest.mark.parametrize("hole", ["a header", "two blocks", "the second half", "half in the middle", "the first block"])
def test_a_hole_of_zeros_is_not_the_end(hole: str, tar: Path) -> None:
    whole = bytearray(tar.read_bytes())
    place, half = 80 * 7 * BLOCK, len(whole) // 2 // BLOCK * BLOCK
    start, stop = {
        "a header": (place, place + BLOCK),
        "two blocks": (place, place + 2 * BLOCK),
        "the second half": (half, len(whole)),
        "half in the middle": (place // 4, place // 4 + half),
        "the first block": (0, BLOCK),
    }[hole]
    whole[start:stop] = bytes(stop - start)
    tar.write_bytes(whole)
    with pytest.raises(FormatError, match=r"x\.tar: cut or damaged at byte \d+"):
        fastdata.open(tar)


def test_the_padding_of_the_last_record_is_not_a_hole(tar: Path) -> None:
    """Records of 20 blocks by custom, of other sizes with tar's -b; one block of zeros is an end too."""
    members_alone = tar.read_bytes()[: 120 * 7 * BLOCK]
    ended = members_alone + bytes(2 * BLOCK)
    records = [ended + bytes(-len(ended) % size) for size in (10_240, 20_480, 65_536, 1 << 20)]
    for whole in (members_alone + bytes(BLOCK), ended, ended + bytes(9999), *records):
        tar.write_bytes(whole)
        with fastdata.open(tar) as reader:
            assert len(reader) == 120
    tar.write_bytes(members_alone)
    with tar.open("r+b") as file:
        file.truncate(1 << 40)  # a hole of the file system: nothing of it is read
    with pytest.raises(FormatError, match="nothing but zeros"):
        fastdata.open(tar)


def test_joined_archives_are_not_read_in_part(tar: Path) -> None:
    tar.write_bytes(tar.read_bytes() * 2)
    with pytest.raises(FormatError, match="archives that were joined"):
        fastdata.open(tar)
