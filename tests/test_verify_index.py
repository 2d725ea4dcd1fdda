"""`verify` of a false index: a faulty writer made it, so every hash is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdata
from fastdata import Record
from fastdata.converters.writers import base
from fastdata.errors import FormatError
from fastdata.formats.index import IndexBuilder
from fastdata.formats.verify import DATA_SET, Verified
from fastdata.manifest import Manifest
from tests import images, samples
from tests.command import run, strict

Columns = dict[str, Any]
CLASSES = ("cat", "dog", "fox")
COUNT = 6
JPEG = images.jpeg(images.photo(16, 12))
RECORDS = [
    Record(f"k{i}/é", {"jpg": JPEG, "cls": b"%d" % (i % 3), "txt": b"words %d" % i}, f"k{i}/é.jpg")
    for i in range(COUNT)
]


def lying(lie: Callable[[Columns], None], monkeypatch: pytest.MonkeyPatch, place: Path, layout: str) -> str:
    """A data set with a false index."""
    honest = IndexBuilder.columns

    def columns(builder: IndexBuilder) -> Columns:
        made = {name: np.array(column) for name, column in honest(builder).items()}
        lie(made)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(IndexBuilder, "columns", columns)
        return samples.write(place, layout, RECORDS, classes=CLASSES)


def found(path: str) -> tuple[set[int], str]:
    """(the records that are reported, all messages)"""
    try:
        with fastdata.open(path) as reader:
            assert isinstance(reader, Verified)
            problems = list(reader.problems())
            pairs = [(problem.name, problem.message) for problem in problems]
            assert list(reader.verify()) == pairs
            for problem in problems:
                key = "" if problem.row == DATA_SET else reader.keys[problem.row]
                assert key in problem.name if key else problem.name
    except FormatError as error:
        return set(range(COUNT)), f"refused: {error}"
    return {problem.row for problem in problems} - {DATA_SET}, "\n".join(problem.message for problem in problems)


def labels(c: Columns) -> None:
    c["label"][0], c["label"][1] = 2**62, -7


def other_class(c: Columns) -> None:
    c["label"][1] = 2


def no_class(c: Columns) -> None:
    c["label"][5] = -1


def empty_key(c: Columns) -> None:
    c["key_end"][1] = 0


def key_borders(c: Columns) -> None:
    c["key_end"][2] += 1


def escape(c: Columns) -> None:
    c["key_bytes"][0] = 27


def no_utf8(c: Columns) -> None:
    c["key_bytes"][3] = 0xFF


def same_keys(c: Columns) -> None:
    begin, middle, end = (int(c["key_end"][i]) for i in (0, 1, 2))
    c["key_bytes"][middle:end] = c["key_bytes"][begin:middle]


def hash_rows(c: Columns) -> None:
    c["hash_row"][:] = 2**62


def swapped_hash_rows(c: Columns) -> None:
    c["hash_row"][[0, 1]] = c["hash_row"][[1, 0]]


def hashes(c: Columns) -> None:
    c["hash"][:] += np.uint64(1)


def path_borders(c: Columns) -> None:
    c["path_end"][1] = -9


def file_number(c: Columns) -> None:
    c["file"][3] = 77


def field_number(c: Columns) -> None:
    c["field"][3] = 77


def field_twice(c: Columns) -> None:
    c["field"][5] = c["field"][4]


def beyond(c: Columns) -> None:
    c["offset"][3] = 2**62


def negative(c: Columns) -> None:
    c["size"][3] = -1


def shared(c: Columns) -> None:
    for name in ("file", "offset", "size", "crc"):
        c[name][3] = c[name][0]


def borders(c: Columns) -> None:
    c["start"][2] = 2


LIES = {
    labels: {0, 1}, other_class: {1}, no_class: {5}, empty_key: {0, 1}, key_borders: {1, 2}, escape: {0}, no_utf8: {0},
    same_keys: {1}, hash_rows: set(range(COUNT)), swapped_hash_rows: set(), hashes: set(range(COUNT)),
    path_borders: set(), file_number: {1}, field_number: {1}, field_twice: {1}, beyond: {1}, negative: {1},
    shared: {1}, borders: {1},
}  # fmt: skip


@pytest.mark.parametrize("layout", samples.LAYOUTS)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_an_index_is_checked_against_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, lie: Callable[[Columns], None]
) -> None:
    path = lying(lie, monkeypatch, tmp_path, layout)
    rows, messages = found(path)
    assert messages
    assert rows >= LIES[lie]
    code, out, _ = run("verify", path, "--json")
    assert code == 1
    if out:
        assert strict(out)["damaged"] <= COUNT


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_an_honest_index_has_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    path = lying(lambda _: None, monkeypatch, tmp_path, layout)
    assert found(path) == (set(), "")


def test_other_bytes_under_their_own_checksum_are_found_by_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zlib

    def other_text(c: Columns) -> None:
        c["crc"][5] = zlib.crc32(b"words X")

    path = Path(lying(other_text, monkeypatch, tmp_path, "hdf5"))
    path.write_bytes(path.read_bytes().replace(b"words 1", b"words X"))
    assert found(str(path)) == (
        set(),
        "the manifest's fingerprint is not that of the keys, fields and checksums in the index",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": ("jpg", "cls", "txt", "json")}, "no record has the field 'json'"),
        ({"fields": ("jpg", "cls", "t\x1bxt")}, "not a valid field name"),
        ({"classes": ("cat", "dog", "cat")}, "the class 'cat' appears twice"),
        ({"fingerprint": "0" * 64}, "fingerprint"),
    ],
)
def test_a_manifest_is_checked_against_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    def finished(manifest: Manifest, *rest: Any) -> Manifest:
        return dataclasses.replace(base.finished(manifest, *rest), **changes)

    monkeypatch.setattr("fastdata.converters.writers.lmdb.finished", finished)
    path = samples.write(tmp_path, "lmdb", RECORDS, classes=CLASSES)
    code, out, _ = run("verify", path, "--json")
    facts = strict(out)
    assert code == 1
    assert facts["damaged"] == (
        COUNT if "field name" in message else 0
    )  # plain lmdb does not find them under that name
    assert facts["problems"][0]["name"] == path
    assert message in facts["problems"][0]["problem"]
    assert facts["problems_of_data_set"] == len(facts["problems"]) - facts["damaged"] >= 1


@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_records_that_changed_places_are_named_where_the_data_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    def swapped(c: Columns) -> None:
        for name in ("file", "offset", "size", "crc"):
            c[name][[2, 5]] = c[name][[5, 2]]

    rows, messages = found(lying(swapped, monkeypatch, tmp_path, layout))
    assert messages
    assert rows >= (set() if layout == "hdf5" else {0, 1})


def test_damaged_records_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_the_same(c: Columns) -> None:
        for name in ("offset", "size", "crc"):
            c[name][:] = c[name][0]

    path = lying(all_the_same, monkeypatch, tmp_path, "lmdb")
    code, out, _ = run("verify", path, "--quiet")
    assert code == 1
    last = out.splitlines()[-1]
    assert last.startswith(f"{COUNT} damaged of {COUNT} records, ")
    assert "of the data set itself" in last


def test_a_folder_of_shards_reports_its_own_problems_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SHARD_SIZE", 4000)
    path = lying(hashes, monkeypatch, tmp_path, "shards")
    (Path(path) / "manifest.json").touch()
    assert len(list(Path(path).glob("*.tar"))) > 1
    whole, shards = (strict(run("verify", place, "--json")[1]) for place in (path, f"{path}/*.tar"))
    assert [entry["name"] for entry in whole["problems"]] == [entry["name"] for entry in shards["problems"]]
    assert whole["damaged"] == shards["damaged"] == COUNT
