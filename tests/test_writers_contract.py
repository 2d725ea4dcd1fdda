"""One suite for the writers of all formats: what `create` promises."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdata
from fastdata import Record
from fastdata.converters.writers import create
from fastdata.errors import ConvertError, OptionError, OutputExistsError, RecordError
from tests import samples


@pytest.fixture(params=samples.LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def chosen(layout: str) -> str | None:
    return "tar" if layout == "shards" else None


def test_two_runs_give_the_same_bytes(tmp_path: Path, layout: str) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(samples.files(samples.write(tmp_path / name, layout)))
    assert made[0] == made[1]


def test_nothing_but_the_data_set_is_left(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout)
    assert os.listdir(tmp_path) == [os.path.basename(path)]
    with create(path, format=chosen(layout), overwrite=True) as writer:
        assert writer.bytes_out == 0
        writer.write(samples.RECORDS[4])
    assert os.listdir(tmp_path) == [os.path.basename(path)]
    assert writer.bytes_out == sum(map(len, samples.files(path).values()))
    assert samples.read(path) == samples.expected(samples.RECORDS[4:5])


def test_leaving_by_an_exception_discards(tmp_path: Path, layout: str) -> None:
    path = samples.place(tmp_path, layout)
    with contextlib.suppress(ZeroDivisionError), create(path, format=chosen(layout)) as writer:
        for item in samples.RECORDS:
            writer.write(item)
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="closed"):
        writer.write(samples.RECORDS[0])


def test_a_writer_that_is_dropped_warns(tmp_path: Path, layout: str) -> None:
    writer = create(samples.place(tmp_path, layout), format=chosen(layout))
    writer.write(samples.RECORDS[0])
    with pytest.warns(ResourceWarning, match="nothing is written"):  # noqa: PT031
        del writer
        gc.collect()
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_leaves_the_block_changes_nothing(tmp_path: Path, layout: str) -> None:
    path = samples.place(tmp_path, layout)
    with create(path, format=chosen(layout)) as writer:
        writer.write(samples.RECORDS[0])
        child = os.fork()
        if child == 0:
            writer.discard()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        writer.write(samples.RECORDS[1])
    assert samples.read(path) == samples.expected(samples.RECORDS[:2])


def test_an_existing_destination_is_refused_untouched(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout, samples.RECORDS[:3])
    before = samples.files(path)
    with pytest.raises(OutputExistsError, match="overwrite"):
        create(path, format=chosen(layout))
    assert samples.files(path) == before
    assert os.listdir(tmp_path) == [os.path.basename(path)]


def test_the_old_stays_until_the_new_is_whole(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout, samples.RECORDS[:3])
    with create(path, format=chosen(layout), overwrite=True) as writer:
        for item in samples.RECORDS:
            writer.write(item)
        assert samples.read(path) == samples.expected(samples.RECORDS[:3])
    assert samples.read(path) == samples.expected()
    with contextlib.suppress(ZeroDivisionError), create(path, format=chosen(layout), overwrite=True) as writer:
        raise ZeroDivisionError
    assert samples.read(path) == samples.expected()


def test_two_writers_to_one_place(tmp_path: Path, layout: str) -> None:
    path = samples.place(tmp_path, layout)
    with create(path, format=chosen(layout)) as writer:
        with pytest.raises(ConvertError, match="another run is writing"):
            create(path, format=chosen(layout), overwrite=True)
        writer.write(samples.RECORDS[1])
    assert samples.read(path) == samples.expected(samples.RECORDS[1:2])


def test_what_was_created_during_the_conversion_is_not_changed(tmp_path: Path, layout: str) -> None:
    path = Path(samples.place(tmp_path, layout))
    writer = create(path, format=chosen(layout))
    writer.write(samples.RECORDS[1])
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="was created during the conversion; it was not changed"):
        writer.close()
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == [path.name]


BAD_RECORDS = {
    "no key": (Record("", {"jpg": b""}), "non-empty"),
    "dot in key": (Record("a.b", {"jpg": b""}), "key_from_path"),
    "parent": (Record("../a", {"jpg": b""}), "key rule"),
    "absolute": (Record("/a", {"jpg": b""}), "key rule"),
    "double slash": (Record("a//b", {"jpg": b""}), "key rule"),
    "meta": (Record("__a", {"jpg": b""}), "key rule"),
    "newline": (Record("a\nb", {"jpg": b""}), "key rule"),
    "bad escape": (Record("a%2", {"jpg": b""}), "key rule"),
    "needless escape": (Record("a%41", {"jpg": b""}), "key rule"),
    "surrogate": (Record("a\udcff", {"jpg": b""}), "UTF-8"),
    "long key": (Record("k" * 508, {"jpg": b""}), "511"),
    "long field": (Record("k", {"f" * 510: b""}), "511"),
    "looks cut, but has dots": (Record("a.b" * 157 + "~0123456789abcdef", {"jpg": b""}), "key rule"),
    "no fields": (Record("a", {}), "no fields"),
    "upper-case field": (Record("a", {"JPG": b""}), "'JPG'"),
    "empty field": (Record("a", {"": b""}), "lower-case"),
    "field of webdataset's own": (Record("a", {"__key__": b""}), "'__'"),
    "field with a slash": (Record("a", {"a/b": b""}), "lower-case"),
    "field that ends in a newline": (Record("a", {"jpg\n": b""}), "lower-case"),
    "jpeg": (Record("a", {"jpeg": b""}), "'jpg'"),
    "text": (Record("a", {"txt": "text"}), "bytes-like"),  # type: ignore[dict-item]
    "class beyond the table": (Record("a", {"cls": b"3"}), "3 classes"),
    "negative class": (Record("a", {"cls": b"-2"}), "3 classes"),
    "class that is no number": (Record("a", {"cls": b"cat"}), "integer"),
    "class with an underscore": (Record("a", {"cls": b"1_0"}), "integer"),
    "class beyond 64 bits": (Record("a", {"cls": b"9" * 30}), "integer"),
    "path that is not a file name": (Record("a", {"jpg": b""}, "\ud800"), "file name"),
    "duplicate": (samples.RECORDS[0], "written before, as record 0"),
}


def test_bad_records_are_refused_and_the_others_written(tmp_path: Path, layout: str) -> None:
    path = samples.place(tmp_path, layout)
    with create(path, format=chosen(layout), classes=samples.CLASSES) as writer:
        writer.write(samples.RECORDS[0])
        for name, (bad, message) in BAD_RECORDS.items():
            with pytest.raises(RecordError) as caught:
                writer.write(bad)
            assert message in str(caught.value), name
        writer.write(samples.RECORDS[1])
    assert samples.read(path) == samples.expected(samples.RECORDS[:2])
    with fastdata.open(path) as reader:
        assert list(reader.verify()) == []


def test_a_blob_that_lmdb_could_not_hold_is_refused_everywhere(tmp_path: Path, layout: str) -> None:
    path = samples.place(tmp_path, layout)
    with create(path, format=chosen(layout)) as writer, mmap.mmap(-1, 2**32) as huge, memoryview(huge) as view:
        with pytest.raises(RecordError, match="4294967295 bytes"):
            writer.write(Record("a", {"jpg": view}))  # type: ignore[dict-item]
        writer.write(samples.RECORDS[0])


def test_bytes_like_fields_of_every_shape(tmp_path: Path, layout: str) -> None:
    array = np.arange(2 * 3 * 4, dtype=np.uint16).reshape(2, 3, 4)
    shapes = {
        "bytearray": bytearray(b"abc"), "message": memoryview(array), "strided": memoryview(array[:, ::2, 1:]),
        "empty": memoryview(array[:0]), "bytes": memoryview(b"xyz"),
    }  # fmt: skip
    path = samples.write(tmp_path, layout, [Record("a", shapes)])  # type: ignore[arg-type]
    assert samples.read(path)[0][1] == {name: bytes(blob) for name, blob in shapes.items()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": "cat"}, "list of distinct strings"),
        ({"classes": ["a", "a"]}, "distinct"),
        ({"classes": [1, 2]}, "strings"),
        ({"options": {"x": object()}}, "JSON"),
        ({"options": {"x": float("nan")}}, "JSON"),
        ({"shard_size": 0}, "shard_size"),
        ({"format": "zip"}, "'lmdb', 'hdf5' or 'tar'"),
    ],
)
def test_options_are_checked_first(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        create(tmp_path / "data", **{"format": "lmdb", **options})  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_the_ending_names_the_format(tmp_path: Path) -> None:
    for name, kind in {"a.LMDB": "lmdb", "a.hdf5": "hdf5", "a.H5": "hdf5", "a.tar": "tar"}.items():
        with create(tmp_path / name):
            pass
        with fastdata.open(tmp_path / name) as reader:
            assert reader.manifest.format == kind
    for name, chosen_format, message in (("a", None, "names no format"), ("a.lmdb", "tar", "ends like lmdb")):
        with pytest.raises(OptionError, match=message):
            create(tmp_path / "new" / name, format=chosen_format)
    assert not (tmp_path / "new").exists()


FIELDS = st.from_regex(r"(?!__)[a-z0-9_-]{1,5}(\.[a-z]{1,3})?", fullmatch=True).filter(
    lambda name: name not in ("jpeg", "cls")
)
NAMES = st.text(min_size=1, max_size=20) | st.binary(min_size=1, max_size=20).map(os.fsdecode)
ROWS = st.lists(
    st.tuples(NAMES, st.dictionaries(FIELDS, st.binary(max_size=600), min_size=1, max_size=3)),
    max_size=8,
    unique_by=lambda item: item[0],
)


@given(ROWS)
@settings(max_examples=30)
def test_any_record_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, dict[str, bytes]]]
) -> None:
    records = [Record(fastdata.key_from_path(name, keep_suffix=True), fields, name) for name, fields in rows]
    folder = tmp_path_factory.mktemp("any")
    prints = set()
    for layout in samples.LAYOUTS:
        path = samples.write(folder, layout, records)
        assert samples.read(path) == samples.expected(records)
        with fastdata.open(path) as reader:
            prints.add(reader.manifest.fingerprint)
            assert [reader.find(item.key) for item in records] == list(range(len(records)))
    assert len(prints) == 1
