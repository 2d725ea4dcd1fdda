"""One suite for the readers of all formats: the contract of `Reader`."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import fastdata
from fastdata import Record
from fastdata.errors import FormatError
from fastdata.formats import files
from fastdata.formats.base import Reader
from fastdata.formats.files import Scratch, stamp_of
from tests import samples


@pytest.fixture(params=samples.LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def path(tmp_path: Path, layout: str) -> str:
    return samples.write(tmp_path, layout, options={"resize": 256, "pad_color": [0, 0, 0]})


def test_gives_the_records_that_were_written(path: str) -> None:
    with fastdata.open(path) as reader:
        assert isinstance(reader, Reader)
        assert len(reader) == len(samples.RECORDS)
        assert samples.content(reader) == samples.expected()
        assert [item.key for item in reader] == [item.key for item in samples.RECORDS]  # type: ignore[attr-defined]
        assert all(type(blob) is bytes for blob in reader[5].fields.values())


def test_indexes_as_sequences_do(path: str) -> None:
    with fastdata.open(path) as reader:
        last = len(reader) - 1
        assert reader[-1] == reader[last] == reader[np.int64(last)]  # type: ignore[index]
        assert reader[-len(reader)] == reader[0]
        for wrong in (len(reader), -len(reader) - 1, 10**30):
            with pytest.raises(IndexError, match=f"of {len(reader)}"):
                reader[wrong]
            with pytest.raises(IndexError):
                reader.image(wrong)
            with pytest.raises(IndexError):
                reader.keys[wrong]


def test_knows_keys_paths_labels_and_classes(path: str) -> None:
    with fastdata.open(path) as reader:
        assert list(reader.keys) == [item.key for item in samples.RECORDS]
        assert list(reader.paths) == [item.path for item in samples.RECORDS]
        assert reader.keys[2:9:3] == [item.key for item in samples.RECORDS[2:9:3]]
        assert reader.keys[::-1] == [item.key for item in samples.RECORDS[::-1]]
        assert reader.keys[-1] == samples.RECORDS[-1].key
        assert reader.labels.dtype == np.int64
        assert reader.labels.tolist() == [item.label for item in samples.RECORDS]
        assert reader.classes == samples.CLASSES
        assert reader.path == os.path.abspath(path)
        with pytest.raises(ValueError, match="read-only"):
            reader.labels[0] = 1


def test_finds_records_by_key(path: str) -> None:
    with fastdata.open(path) as reader:
        for row, item in enumerate(samples.RECORDS):
            assert reader.find(item.key) == row
        for missing in ("", "cat", "cat/0.jpg", "nothing", "\udcff"):
            with pytest.raises(KeyError):
                reader.find(missing)


def test_gives_the_image_as_a_view(path: str) -> None:
    with fastdata.open(path) as reader:
        for row, item in enumerate(samples.RECORDS):
            field, view = reader.image(row)
            assert (field, bytes(view)) == ("jpg", item.fields["jpg"])
            assert reader.image_size(row) == len(item.fields["jpg"])
            assert reader.size(row) == sum(map(len, item.fields.values()))
            assert memoryview(view).readonly


def test_reads_the_image_into_scratch_memory(path: str) -> None:
    scratch = Scratch()
    with fastdata.open(path) as reader:
        for row, item in enumerate(samples.RECORDS):
            field, view = reader.image(row, scratch)
            assert (field, bytes(view)) == ("jpg", item.fields["jpg"])
            assert memoryview(view).readonly
    with pytest.raises(ValueError, match="closed"):
        reader.image(3, scratch)


def test_a_record_without_an_image_is_named(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout, [Record("a", {"txt": b"x", "cls": b"1"})])
    with fastdata.open(path) as reader:
        assert reader[0].fields["txt"] == b"x"
        with pytest.raises(FormatError, match=r"'a' has no image.*txt"):
            reader.image(0)


def test_the_manifest_describes_the_data_set(path: str, layout: str) -> None:
    with fastdata.open(path) as reader:
        manifest = reader.manifest
    assert manifest.format == {"shards": "tar"}.get(layout, layout)
    assert (manifest.count, manifest.fields) == (len(samples.RECORDS), ("jpg", "cls", "mask.png", "json"))
    assert (manifest.classes, manifest.options) == (samples.CLASSES, {"resize": 256, "pad_color": [0, 0, 0]})
    assert sum(file.bytes for file in manifest.files) == sum(
        len(blob) for name, blob in samples.files(path).items() if name != "manifest.json"
    )


def test_verify_finds_nothing_wrong(path: str) -> None:
    with fastdata.open(path) as reader:
        assert list(reader.verify()) == []


def test_an_empty_data_set(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout, [])
    with fastdata.open(path) as reader, pickle.loads(pickle.dumps(reader)) as copy:
        for one in (reader, copy):
            assert len(one) == 0
            assert (list(one.keys), list(one.paths), one.labels.tolist(), list(one.verify())) == ([], [], [], [])
            assert one.classes == samples.CLASSES
            with pytest.raises(IndexError):
                one[0]
            with pytest.raises(KeyError):
                one.find("a")


def test_views_outlive_the_reader(path: str) -> None:
    reader = fastdata.open(path)
    views = [reader.image(row)[1] for row in range(len(reader))]
    keys, labels = reader.keys, reader.labels
    reader.close()
    del reader
    gc.collect()
    assert [bytes(view) for view in views] == [item.fields["jpg"] for item in samples.RECORDS]
    assert (keys[3], int(labels[3])) == (samples.RECORDS[3].key, samples.RECORDS[3].label)


def test_a_closed_reader_raises(path: str) -> None:
    reader = fastdata.open(path)
    assert reader[3].key
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader[3]


def test_threads_read_the_same(path: str) -> None:
    wrong: list[object] = []

    def work(reader: Reader) -> None:
        for _ in range(5):
            if samples.content(reader) != samples.expected():
                wrong.append(reader)

    with fastdata.open(path) as reader:
        threads = [threading.Thread(target=work, args=(reader,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_pickles_hold_the_path_alone(path: str) -> None:
    with fastdata.open(path) as reader:
        before = pickle.dumps(reader)
        samples.content(reader)
        after = pickle.dumps(reader)
    assert before == after
    assert len(after) < 1000
    with pickle.loads(after) as copy:
        assert samples.content(copy) == samples.expected()
        assert copy.manifest.fingerprint


def test_a_pickled_reader_refuses_another_data_set(tmp_path: Path, layout: str) -> None:
    path = samples.write(tmp_path, layout)
    with fastdata.open(path) as reader:
        blob = pickle.dumps(reader)
    samples.write(tmp_path, layout, reversed(samples.RECORDS), overwrite=True)
    with pytest.raises(FormatError, match="replaced"):
        pickle.loads(blob)


@pytest.mark.parametrize("read_before", [True, False])
def test_an_open_reader_never_mixes_two_data_sets(tmp_path: Path, layout: str, read_before: bool) -> None:
    """Replaced by records of the same sizes in another order: the index of one would fit the bytes of the other."""
    first = [Record(f"{i}", {"jpg": samples.payload(i, 700)}) for i in range(40)]
    second = [Record(f"{i}", {"jpg": samples.payload(99 - i, 700)}) for i in range(40)]
    path = samples.write(tmp_path, layout, first)
    with fastdata.open(path) as reader:
        if read_before:
            assert samples.content(reader) == samples.expected(first)
        samples.write(tmp_path, layout, second, overwrite=True)
        if read_before:
            assert samples.content(reader) == samples.expected(first)
        else:
            with pytest.raises((FormatError, FileNotFoundError), match=r"replaced|No such file"):
                samples.content(reader)
    assert samples.read(path) == samples.expected(second)


@pytest.mark.parametrize("layout", ["lmdb", "shards"])
def test_a_data_set_that_is_replaced_while_it_is_opened(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [Record(f"{i}", {"jpg": samples.payload(i, 700)}) for i in range(40)]
    path = samples.write(tmp_path, layout, first)
    calls: list[object] = []

    def swaps(status: os.stat_result) -> object:
        calls.append(status)
        if len(calls) == 1:
            samples.write(tmp_path, layout, first[::-1], overwrite=True)
        return stamp_of(status)

    monkeypatch.setattr(files, "stamp_of", swaps)
    with pytest.raises(FormatError, match="replaced while it was opened"):
        fastdata.open(path)
    assert samples.read(path) == samples.expected(first[::-1])


def test_all_formats_of_the_same_records_have_one_fingerprint(tmp_path: Path) -> None:
    prints = set()
    for layout in samples.LAYOUTS:
        with fastdata.open(samples.write(tmp_path, layout)) as reader:
            prints.add(reader.manifest.fingerprint)
    assert len(prints) == 1


def test_moves_with_its_files(path: str, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / os.path.basename(path)
    moved.parent.mkdir()
    os.rename(path, moved)
    assert samples.read(str(moved)) == samples.expected()


def test_where_a_system_reads_less_at_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gibibytes are the most on Linux; here it is 7 bytes."""
    monkeypatch.setattr(files, "_pread", lambda descriptor, size, offset: os.pread(descriptor, min(size, 7), offset))
    monkeypatch.setattr(files, "_preadv", files._copy_into)
    assert samples.read(path) == samples.expected()


def test_where_a_system_reads_at_no_place(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_pread", files._seek_and_read)
    monkeypatch.setattr(files, "_preadv", files._copy_into)
    with fastdata.open(path) as reader:
        assert samples.content(reader) == samples.expected()
        assert list(reader.verify()) == []
