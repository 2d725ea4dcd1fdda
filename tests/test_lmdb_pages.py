"""False pages of LMDBs: errors, within time and memory that are bounded by the size of the file."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import lmdb
import pytest

import fastdata
from fastdata.errors import FormatError
from fastdata.formats.lmdb_pages import walk

PAGE = 4096
BRANCH, LEAF, BIG = 1, 2, 1


def meta(number: int, entries: int, root: int, last: int = 1000, transaction: int = 1, flags: int = 0) -> bytes:
    page = bytearray(PAGE)
    struct.pack_into("<Q2xHHH", page, 0, number, 8, 0, 0)
    struct.pack_into("<II8xQI", page, 16, 0xBEEFC0DE, 1, 1 << 30, PAGE)
    struct.pack_into("<H26xQQQQ", page, 92, flags, entries, root, last, transaction)
    return bytes(page)


def page(number: int, kind: int, nodes: bytes, places: Sequence[int]) -> bytes:
    upper = PAGE - len(nodes)
    blob = struct.pack("<Q2xHHH", number, kind, 16 + 2 * len(places), upper)
    blob += struct.pack(f"<{len(places)}H", *(upper + place for place in places))
    return blob.ljust(upper, b"\0") + nodes


def leaf(key: bytes, value: bytes = b"x", flags: int = 0, size: int | None = None) -> bytes:
    return struct.pack("<HHHH", len(value) if size is None else size, 0, flags, len(key)) + key + value


def branch(child: int) -> bytes:
    return struct.pack("<HHHH", child, 0, 0, 0)


def file(entries: int, *pages: bytes, spare: int = 20) -> bytes:
    return meta(0, 0, 2**64 - 1, transaction=0) + meta(1, entries, 2) + b"".join(pages) + bytes(spare * PAGE)


A, B = leaf(b"a.jpg"), leaf(b"b.jpg")
PAIR = page(2, LEAF, A + B, [0, len(A)])
LIES = {
    "one leaf many times": file(
        24, page(2, BRANCH, branch(3) * 12, range(0, 96, 8)), page(3, LEAF, A + B, [0, len(A)])
    ),
    "a page in itself": file(1, page(2, BRANCH, branch(2), [0])),
    "a meta page in the tree": file(1, page(2, BRANCH, branch(1), [0])),
    "one node many times": file(2000, page(2, LEAF, A, [0] * 2000)),
    "a node in the value of another": file(2, page(2, LEAF, leaf(b"a.jpg", B), [0, 13])),
    "keys that overlap": file(2, page(2, LEAF, leaf(b"a" * 400) + leaf(b"b" * 400), [0, 100])),
    "a key of more than 511 bytes": file(1, page(2, LEAF, leaf(b"a" * 512), [0])),
    "a key of no bytes": file(1, page(2, LEAF, leaf(b""), [0])),
    "a key that comes twice": file(2, page(2, LEAF, A + A, [0, len(A)])),
    "keys that fall": file(2, page(2, LEAF, B + A, [0, len(A)])),
    "a value beyond its page": file(1, page(2, LEAF, leaf(b"a.jpg", size=60_000), [0])),
    "a value in two nodes": file(
        2,
        page(
            2,
            LEAF,
            leaf(b"a.jpg", struct.pack("<Q", 4), BIG, 9) + leaf(b"b.jpg", struct.pack("<Q", 4), BIG, 9),
            [0, 21],
        ),
    ),
    "a value on a page of the tree": file(1, page(2, LEAF, leaf(b"a.jpg", struct.pack("<Q", 2), BIG, 9), [0])),
    "a value beyond the file": file(1, page(2, LEAF, leaf(b"a.jpg", struct.pack("<Q", 4), BIG, 65_535), [0]), spare=5),
    "more entries than there are": file(3, PAIR),
    "fewer entries than there are": file(1, PAIR),
    "a page beyond the last one": meta(0, 0, 2**64 - 1, transaction=0) + meta(1, 2, 2, last=1) + PAIR,
    "a lost meta page": bytes(PAGE) + meta(1, 2, 2) + PAIR,
    "a lost newer meta page": meta(0, 2, 2, transaction=4) + bytes(PAGE) + PAIR,
    "a meta page from long ago": meta(0, 2, 2, transaction=4) + meta(1, 0, 2**64 - 1, transaction=1) + PAIR,
    "a meta page that stands in the other's place": meta(1, 2, 2) + meta(0, 2, 2) + PAIR,
}


def test_pages_as_they_should_be(tmp_path: Path) -> None:
    (tmp_path / "x.mdb").write_bytes(file(2, PAIR))
    with fastdata.open(tmp_path / "x.mdb") as reader:
        assert list(reader.keys) == ["a", "b"]


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_errors_in_words(lie: str, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "data.mdb").write_bytes(LIES[lie])
    with pytest.raises(FormatError, match=r"x: (cut or damaged LMDB|not an LMDB data file)"):
        fastdata.open(tmp_path / "x")


def test_memory_follows_from_the_file(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        for blob in LIES.values():
            with pytest.raises(FormatError):
                for _ in walk(memoryview(blob), "here"):
                    pass
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def changed(path: Path, change: Callable[[int, int], None]) -> None:
    for turn in range(4):
        with lmdb.open(str(path), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
            for number in range(turn * 50, turn * 50 + 50):
                transaction.put(b"%04d.jpg" % number, bytes(number * 20))
        change(turn, (turn + 1) * 50)


def test_no_older_state_is_read_for_a_newer_one(tmp_path: Path) -> None:
    """Each meta page in turn is lost in part: never are fewer entries read than the last commit left."""
    path, rng = tmp_path / "x", random.Random(0)

    def look(turn: int, count: int) -> None:
        data = path / "data.mdb"
        whole = data.read_bytes()
        with fastdata.open(path) as reader:
            assert len(reader) == count
        for number in (0, 1):
            for place, size in [(0, PAGE), (16, 8), (120, 8), (128, 8), (144, 8), (92, 60)]:
                damaged = bytearray(whole)
                start = number * PAGE + place
                damaged[start : start + size] = bytes(size) if rng.random() < 0.7 else rng.randbytes(size)
                data.write_bytes(damaged)
                try:
                    with fastdata.open(path) as reader:
                        assert len(reader) == count, (turn, number, place)
                except FormatError:
                    pass
        data.write_bytes(whole)

    changed(path, look)


def test_copies_and_files_with_room_are_read(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "x"), map_size=1 << 24, writemap=True) as environment:
        for number in range(3):
            with environment.begin(write=True) as transaction:
                transaction.put(b"%d.jpg" % number, bytes(9000))
        for name in ("plain", "compact"):
            (tmp_path / name).mkdir()
            environment.copy(str(tmp_path / name), compact=name == "compact")
    for name in ("x", "plain", "compact"):
        with fastdata.open(tmp_path / name) as reader:
            assert [len(reader[n].fields["jpg"]) for n in range(len(reader))] == [9000] * 3
