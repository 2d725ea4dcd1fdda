"""SharedBlock: shared by every start method, without a name, gone with its last user; and how much memory is free."""

from __future__ import annotations

import copy
import errno
import gc
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from fastdata import sharedmem
from fastdata.sharedmem import SharedBlock, free_memory

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def _count_up(block: SharedBlock, times: int) -> None:
    for _ in range(times):
        with block.locked() as view, view.cast("q") as words:
            words[0] += 1


def test_processes_share_it_under_a_lock(start_method: str) -> None:
    context = multiprocessing.get_context(start_method)
    with SharedBlock(4096) as block:
        workers = [context.Process(target=_count_up, args=(block, 500)) for _ in range(2)]
        for worker in workers:
            worker.start()
        _count_up(block, 500)
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
            worker.close()
        assert block.buffer.cast("q")[0] == 1500


def test_threads_share_it_under_a_lock() -> None:
    with SharedBlock(8) as block:
        threads = [threading.Thread(target=_count_up, args=(block, 300)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert block.buffer.cast("q")[0] == 1200


def _die_with_the_lock(block: SharedBlock) -> None:
    with block.locked():
        os._exit(9)


def test_a_dead_holder_releases_the_lock() -> None:
    context = multiprocessing.get_context("fork")
    with SharedBlock(8) as block:
        worker = context.Process(target=_die_with_the_lock, args=(block,))
        worker.start()
        worker.join()
        worker.close()
        _count_up(block, 1)
        assert block.buffer.cast("q")[0] == 1


def test_nothing_else_can_pickle_it() -> None:
    with SharedBlock(8) as block:
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="while a process is being started"):
                way(block)


def test_views_stay_valid_after_close() -> None:
    block = SharedBlock(100)
    view = block.buffer
    view[:3] = b"abc"
    block.close()
    block.close()
    assert bytes(view[:3]) == b"abc"
    with pytest.raises(ValueError, match="closed"):
        _ = block.buffer


@linux
@pytest.mark.parametrize("memfd", [True, False])
def test_no_name_and_no_descriptor_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memfd: bool) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not memfd:
        monkeypatch.delattr(os, "memfd_create")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    blocks = [SharedBlock(5000) for _ in range(3)]
    assert not os.get_inheritable(blocks[0]._descriptor)
    assert not list(tmp_path.iterdir())
    assert not [name for name in os.listdir("/dev/shm") if "fastdata" in name]
    blocks[0].close()
    del blocks
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sandbox_without_memfd_gets_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "memfd_create", refused, raising=False)
    with SharedBlock(10) as block:
        block.buffer[:2] = b"ok"
        assert bytes(block.buffer[:2]) == b"ok"


def test_an_impossible_size_leaves_nothing() -> None:
    with pytest.raises((ValueError, OSError)):
        SharedBlock(0)


def _group(folder: Path, limit: str, usage: int, inactive: int, version: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")


def test_control_groups_count_with_their_ancestors(tmp_path: Path) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    _group(root / "a" / "b", "max", 500, 0, 2)
    _group(root / "a", "1000", 700, 300, 2)
    _group(root / "memory" / "c", "5000", 1000, 0, 1)
    membership.write_text("0::/a/b\n4:cpu,memory:/c\n3:pids:/d\n")
    assert sorted(sharedmem._group_free(str(root), str(membership))) == [600, 4000]
    membership.write_text("0::/not/there\n")
    assert list(sharedmem._group_free(str(root), str(membership))) == []
    assert list(sharedmem._group_free(str(root), str(tmp_path / "none"))) == []


def test_free_memory_is_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_memory() > 1_000_000
    monkeypatch.setattr(sharedmem, "_machine_free", lambda: 100)
    monkeypatch.setattr(sharedmem, "_group_free", lambda: iter([70, 300]))
    assert free_memory() == 70
    monkeypatch.setattr(sharedmem, "_group_free", lambda: iter([-5]))
    assert free_memory() == 0


@linux
def test_without_descriptors_no_file_is_tried_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", fails, raising=False)
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: pytest.fail("a temporary file was asked for"))
    with pytest.raises(OSError, match=r"RLIMIT_NOFILE"):
        SharedBlock(100)
