"""CachedReader: the same records from memory, once for all processes, refused where it would not fit."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import fastdata
from fastdata import cache
from fastdata.cache import CachedReader
from fastdata.errors import CacheError, FormatError
from fastdata.formats.base import Reader
from fastdata.formats.detect import open as open_reader
from fastdata.record import Record
from tests import images

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def packed(path: Path, count: int = 12, size: int = 0) -> Path:
    """A small data set: two classes, an extra field now and then, an empty one, one that ends in zeros."""
    with fastdata.create(path, classes=["cat", "dog"]) as writer:
        for i in range(count):
            fields = {"jpg": images.jpeg(images.photo(32, 24, seed=i)) + bytes(size), "cls": b"%d" % (i % 2)}
            if i % 3 == 0:
                fields |= {"json": b"", "extra": b"\0" * i}
            writer.write(Record(f"dog.x/{i}".replace(".", "%2E"), fields, f"dog.x/{i}.jpg"))
    return path


@pytest.fixture(params=["set.lmdb", "set.h5", "set.tar", "photos"])
def source(request: pytest.FixtureRequest, tmp_path: Path, photo_folder: Path) -> Path:
    name: str = request.param
    return photo_folder if name == "photos" else packed(tmp_path / name)


def _content(reader: Reader) -> list[tuple[Record, str, bytes, int, int]]:
    return [(r, f, bytes(b), reader.size(i), reader.image_size(i))
            for i in range(len(reader)) for r, (f, b) in [(reader[i], reader.image(i))]]  # fmt: skip


def test_it_is_a_reader_with_the_same_records(source: Path) -> None:
    with open_reader(source) as inner, CachedReader(inner) as cached:
        assert isinstance(cached, Reader)
        assert _content(cached) == _content(inner)
        assert (cached.path, cached.classes) == (inner.path, inner.classes)
        assert list(cached.keys) == list(inner.keys)
        assert list(cached.paths) == list(inner.paths)
        assert np.array_equal(cached.labels, inner.labels)
        assert cached.manifest.fingerprint == inner.manifest.fingerprint
        assert [cached.find(key) for key in inner.keys] == list(range(len(inner)))
        assert cached[-1] == inner[-1]
        assert list(cached.verify()) == []
        with pytest.raises(IndexError):
            cached[len(inner)]
        with pytest.raises(KeyError):
            cached.find("nobody")


def test_it_cannot_be_changed_through_a_view(source: Path) -> None:
    with open_reader(source) as inner, CachedReader(inner) as cached:
        view = cached.image(0)[1]
        with pytest.raises(TypeError):
            view[0] = 0  # type: ignore[index]
        with pytest.raises(ValueError, match="read-only"):
            cached.labels[0] = 7


def _send_content(reader: Reader, pipe: Connection) -> None:
    pipe.send(_content(reader))
    pipe.recv()
    pipe.close()


def test_workers_need_no_files(start_method: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "set.lmdb")
    with open_reader(path) as inner:
        cached, expected = CachedReader(inner), _content(inner)
    shutil.rmtree(path)
    assert _content(cached) == expected
    context = multiprocessing.get_context(start_method)
    ours, theirs = context.Pipe()
    worker = context.Process(target=_send_content, args=(cached, theirs))
    worker.start()
    theirs.close()
    assert ours.recv() == expected
    ours.send(None)
    worker.join()
    worker.close()
    ours.close()
    cached.close()


def _cache_pss(pid: int) -> int:
    """The part of the shared blocks that counts for a process, in bytes."""
    total, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = "memfd:fastdata" in line
        elif inside and line.startswith("Pss:"):
            total += 1024 * int(line.split()[1])
    return total


@linux
def test_all_processes_have_one_copy(tmp_path: Path) -> None:
    with open_reader(packed(tmp_path / "set.h5", count=16, size=500_000)) as inner:
        cached = CachedReader(inner)
    size = sum(block.size for block in cached._blocks)
    workers = []
    for method in ("fork", "fork", "fork", "fork", "spawn"):
        context = multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        worker = context.Process(target=_send_content, args=(cached, theirs))
        worker.start()
        theirs.close()
        ours.recv()
        workers.append((worker, ours))
    shares = [_cache_pss(pid) for pid in (os.getpid(), *(worker.pid or 0 for worker, _ in workers))]
    assert size * 0.95 < sum(shares) < size * 1.1
    assert min(shares[1:]) > size / 10
    for worker, ours in workers:
        ours.send(None)
        worker.join()
        worker.close()
        ours.close()
    cached.close()


def test_a_plain_pickle_holds_the_path_and_fills_a_new_cache(tmp_path: Path) -> None:
    path = packed(tmp_path / "set.tar")
    with open_reader(path) as inner, CachedReader(inner) as cached:
        blob = pickle.dumps(cached)
        assert len(blob) < 2000
        with pickle.loads(blob) as again:
            assert isinstance(again, CachedReader)
            assert _content(again) == _content(inner)
            assert again._blocks[0] is not cached._blocks[0]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(blob)


def test_what_would_not_fit_is_refused_with_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "free_memory", lambda: 6_000_000)
    monkeypatch.setattr(cache, "SharedBlock", None)  # nothing may be taken before
    with open_reader(packed(tmp_path / "set.h5", size=500_000)) as inner:
        with pytest.raises(CacheError, match=r"set\.h5: .* 6\.0 MB .*12 records.*most 3\.0 MB, half of the 6\.0 MB"):
            CachedReader(inner)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
        with pytest.raises(MemoryError, match=r"most 1\.0 MB.* shared by 3 ranks"):
            CachedReader(inner)


def test_files_that_grow_meanwhile_are_noticed(photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_reader(photo_folder) as inner:
        monkeypatch.setattr(inner, "size", lambda index: 100)
        with pytest.raises(FormatError, match="changed while they were read"):
            CachedReader(inner)


def test_a_closed_cache_raises_and_views_stay(tmp_path: Path) -> None:
    with open_reader(packed(tmp_path / "set.h5")) as inner:
        cached = CachedReader(inner)
        view = cached.image(3)[1]
        cached.close()
        cached.close()
        assert bytes(view) == inner[3].fields["jpg"]
    with pytest.raises(ValueError, match="closed"):
        cached[0]


def test_an_empty_record_set(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "empty.h5"):
        pass
    with open_reader(tmp_path / "empty.h5") as inner, CachedReader(inner) as cached:
        assert len(cached) == 0


def test_what_is_cached_is_not_cached_again(tmp_path: Path) -> None:
    data = fastdata.ImageDataset(packed(tmp_path / "set.h5"), cache="ram")
    with fastdata.DataLoader(data, 4, cache="ram", num_workers=0) as loader:
        assert loader.reader is data.reader
    data.reader.close()
