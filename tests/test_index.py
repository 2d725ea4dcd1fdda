"""The columnar index: packed and unpacked, looked up, and refused when it does not fit."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import FormatError, RecordError
from fastdata.formats import index
from fastdata.formats import rows as rows_module
from fastdata.formats.index import IndexBuilder, index_hash, pack, unpack
from fastdata.formats.rows import LazyStrings, Rows, check_shape
from fastdata.record import Record
from tests import samples


def built() -> IndexBuilder:
    builder = IndexBuilder()
    for row, item in enumerate(samples.RECORDS):
        builder.add(item, [(row % 3, 100 * row + 10 * blob) for blob in range(len(item.fields))])
    return builder


def packed() -> bytes:
    return b"".join(pack(built().columns()))


def test_packs_and_unpacks() -> None:
    columns = built().columns()
    again = unpack(memoryview(packed()), "here")
    assert list(again) == list(columns)
    for name, column in columns.items():
        assert np.array_equal(again[name], column)
        assert again[name].dtype == column.dtype == np.dtype(index.DTYPES[name])
    assert index_hash(again) == index_hash(columns)
    assert len(packed()) % 64 == 0


@pytest.mark.parametrize("count", [0, 1])
def test_small_ones(count: int) -> None:
    builder = IndexBuilder()
    for item in samples.RECORDS[:count]:
        builder.add(item, [(0, 0)] * len(item.fields))
    columns = unpack(memoryview(b"".join(pack(builder.columns()))), "here")
    check_shape(columns, count, len(builder.fields), "here")
    assert list(Rows(columns).keys) == [item.key for item in samples.RECORDS[:count]]


def test_keys_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index, rows_module):
        monkeypatch.setattr(module, "key_hash", lambda key: len(key))
    builder = built()
    with pytest.raises(RecordError, match="written before, as record 3"):
        builder.check_new(samples.RECORDS[3])
    builder.check_new(Record("cat/x", {"jpg": b""}))
    rows = Rows(builder.columns())
    assert [rows.find(item.key) for item in samples.RECORDS] == list(range(len(samples.RECORDS)))
    with pytest.raises(KeyError):
        rows.find("cat/x")


def test_field_names_have_an_end() -> None:
    builder = IndexBuilder([f"f{i}" for i in range(2**16 - 1)])
    builder.check_new(Record("a", {"x": b"", "f0": b""}))
    with pytest.raises(RecordError, match="65536 different field names"):
        builder.check_new(Record("a", {"x": b"", "y": b""}))


@given(st.lists(st.binary(max_size=20)), st.data())
def test_lazy_strings_are_a_sequence(rows: list[bytes], data: st.DataObject) -> None:
    ends = np.cumsum([0, *map(len, rows)])
    strings = LazyStrings(np.frombuffer(b"".join(rows), np.uint8), ends)
    wanted = [row.decode("utf-8", "surrogateescape") for row in rows]
    assert list(strings) == wanted
    part = data.draw(st.slices(len(rows)))
    assert strings[part] == wanted[part]
    for wrong in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            strings[wrong]


def test_any_header_that_was_not_written_is_refused() -> None:
    blob = packed()
    length = int(blob[8:16])
    layout = json.loads(blob[16 : 16 + length])
    wrong: list[object] = [[], None, 5, "x", {}, {**layout, "start": 5}, {**layout, "start": ["<i8", -1, 0]}]
    wrong += [
        {**layout, "size": ["<i8", size, place]}
        for size, place in ((2**70, 0), (1, -1), (1, 2**70), (1.5, 0), (None, 0))
    ]
    wrong += [{**layout, "extra": ["<i8", 0, 0]}, {name: layout[name] for name in list(layout)[1:]}]
    texts = [json.dumps(item).encode() for item in wrong] + [b"", b"[" * 50_000, b"\xff", b"{" + b" " * 100]
    texts += [json.dumps(layout).encode() + b" " * 5000]
    for text in texts:
        with pytest.raises(FormatError, match="here: "):
            unpack(memoryview(blob[:8] + b"%08d" % len(text) + text + blob[16 + length :]), "here")
    for head in (
        b"",
        b"FDINDEX1",
        b"FDINDEX2" + blob[8:],
        b"FDINDEX1-0000001" + blob[16:],
        b"FDINDEX199999999" + blob[16:],
    ):
        with pytest.raises(FormatError, match="here: "):
            unpack(memoryview(head), "here")
    for length in range(0, len(blob) - 64, 61):
        with pytest.raises(FormatError, match="here: "):
            unpack(memoryview(blob[:length]), "here")


@pytest.mark.parametrize("name", list(index.DTYPES))
def test_columns_that_do_not_fit_together_are_refused(name: str) -> None:
    columns = built().columns()
    count, fields = len(samples.RECORDS), 4
    check_shape(columns, count, fields, "here")
    with pytest.raises(FormatError, match="here: damaged index"):
        check_shape({**columns, name: columns[name][:-1]}, count, fields, "here")
    for wrong in (count - 1, count + 1, 0, 2**40):
        with pytest.raises(FormatError, match="here: damaged index"):
            check_shape(columns, wrong, fields, "here")
    with pytest.raises(FormatError, match="field"):
        check_shape(columns, count, 0, "here")


def test_random_bytes_are_refused() -> None:
    rng = random.Random(0)
    for _ in range(200):
        with pytest.raises(FormatError):
            unpack(memoryview(b"FDINDEX1" + b"%08d" % rng.randrange(300) + rng.randbytes(rng.randrange(400))), "here")
