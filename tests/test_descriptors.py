"""Descriptors: no more than the process may have, over all its readers, however many files there are."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fastdata
from fastdata import Record
from fastdata.formats import descriptors, files
from fastdata.formats.base import Reader
from tests import images, samples
from tests.command import run

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at its own descriptors in /proc")

COUNT = 150
RECORDS = [Record(f"{number}", {"png": images.png(images.photo(8, 8, seed=number % 7))}) for number in range(COUNT)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A data set with one record in each shard."""
    return samples.write(tmp_path, "shards", RECORDS, shard_size=1)


def opened(path: str) -> int:
    """How many files of a data set this process has open."""
    names = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return sum(name.startswith(path) for name in names)


@pytest.fixture
def limited() -> Iterator[Callable[[int], None]]:
    """Sets the limit of this process so that so many descriptors are free."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(free: int) -> None:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + free, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_how_many_stay_open_follows_the_limit(limited: Callable[[int], None], path: str) -> None:
    limited(60)
    most = files.most_kept()
    assert most == resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
    with fastdata.open(path) as one, fastdata.open(path) as two:
        for reader in (one, two):
            assert samples.content(reader) == samples.expected(RECORDS)
            assert 0 < opened(path) <= most
        resource.setrlimit(resource.RLIMIT_NOFILE, (most * 3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        assert samples.content(one) == samples.expected(RECORDS)
        assert opened(path) <= most * 3 // 4


@pytest.mark.parametrize("readers", [1, 3])
def test_handles_are_released_when_descriptors_run_out(
    limited: Callable[[int], None], path: str, readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SHARE", 1)  # as if nothing else in the process needed any
    several: list[Reader] = [fastdata.open(path) for _ in range(readers)]
    limited(12)
    for _ in range(2):
        for number in range(COUNT):
            for reader in several:
                assert reader[number].fields == RECORDS[number].fields
    for reader in several:
        reader.close()
    assert opened(path) == 0


def test_handles_are_released_in_threads(
    limited: Callable[[int], None], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SHARE", 1)
    with fastdata.open(path) as reader, ThreadPoolExecutor(6) as pool:
        list(pool.map(len, [()] * 6))
        limited(10)
        for _ in range(3):
            found = list(pool.map(lambda number: reader[number].fields, range(COUNT)))
            assert found == [item.fields for item in RECORDS]


def test_files_in_use_stay_open(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_KEPT", 8)
    count = []
    with fastdata.open(path) as reader:
        reader[0]
        monkeypatch.setattr(descriptors, "_open", lambda name, real=descriptors._open: count.append(name) or real(name))
        for number in range(1, COUNT):
            reader[number]
            reader[0]
    assert len(count) <= COUNT, "the first shard was opened again and again"


def test_every_way_of_reading_needs_few(limited: Callable[[int], None], path: str) -> None:
    limited(40)
    assert run("verify", path, "--quiet", "--workers", "4")[0] == 0
    data = fastdata.ImageDataset(path)
    assert len([data[number] for number in range(COUNT)]) == COUNT
    assert len(list(fastdata.ImageStream(path, shuffle=True))) == COUNT
    assert len(fastdata.ImageDataset(path, cache="ram")) == COUNT
    for workers in (0, 2):
        with fastdata.DataLoader(path, 5, shuffle=True, num_workers=workers) as loader:
            assert sum(len(labels) for _, labels in loader) == COUNT


def test_a_reader_that_is_dropped_leaves_none(path: str) -> None:
    reader = fastdata.open(path)
    samples.content(reader)
    assert opened(path)
    del reader
    gc.collect()
    assert opened(path) == 0


def test_a_file_that_was_released_and_replaced_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_KEPT", 1)
    with fastdata.open(path) as reader:
        assert reader[0] != reader[1]  # now the second is open
        shard = sorted(Path(path).glob("*.tar"))[0]
        blob = shard.read_bytes()
        shard.unlink()
        shard.write_bytes(blob)
        assert reader[1].fields == RECORDS[1].fields
        with pytest.raises(fastdata.FormatError, match="replaced since"):
            reader[0]
        shard.unlink()
        with pytest.raises(fastdata.FormatError, match="gone since"):
            reader[0]


def _read(reader: Reader) -> None:
    assert samples.content(reader) == samples.expected(RECORDS)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_child_that_is_forked_while_a_thread_opens_files_reads(path: str) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with descriptors.handles._lock:
            held.set()
            done.wait()

    with fastdata.open(path) as reader:
        samples.content(reader)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = multiprocessing.get_context("fork").Process(target=_read, args=(reader,))
        child.start()
        child.join()
        done.set()
        thread.join()
        assert child.exitcode == 0
        assert samples.content(reader) == samples.expected(RECORDS)
        child.close()
