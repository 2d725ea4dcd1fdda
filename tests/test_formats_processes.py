"""Readers in other processes, in read-only places and beside other programs."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import pytest

import fastdata
from fastdata.formats.base import Reader
from fastdata.formats.files import Scratch
from tests import samples


def child(readers: dict[str, Reader], results: Any) -> None:
    """Reads everything twice: the second time what a first read may have broken."""
    for layout, reader in readers.items():
        good = all(samples.content(reader) == samples.expected() for _ in range(2))
        results.send((layout, good, reader.classes == samples.CLASSES, list(reader.verify())))
    results.close()


@pytest.mark.parametrize("read_before", [True, False])
def test_a_child_reads_the_same_bytes(tmp_path: Path, start_method: str, read_before: bool) -> None:
    readers = {layout: fastdata.open(samples.write(tmp_path, layout)) for layout in samples.LAYOUTS}
    for reader in readers.values():
        if read_before:
            samples.content(reader)
    context = multiprocessing.get_context(start_method)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(readers, sender))
    process.start()
    sender.close()
    found = [receiver.recv() for _ in readers]
    process.join()
    receiver.close()
    assert process.exitcode == 0
    assert found == [(layout, True, True, []) for layout in readers]
    for reader in readers.values():  # the parent goes on after its child
        assert samples.content(reader) == samples.expected()
        reader.close()


SCRIPT = """
    import os, pathlib, sys
    sys.path[:0] = {paths!r}
    import fastdata
    from tests import samples
    for path in {data!r}:  # as root, so that all that is imported is: Python itself may lie where only root reads
        samples.read(path)
    os.setgid(65534)
    os.setuid(65534)
    for path in {data!r}:
        before = samples.files(path)
        with fastdata.open(path) as reader:
            assert samples.content(reader) == samples.expected(), path
            assert list(reader.verify()) == [], path
        assert samples.files(path) == before
        try:
            samples.write(pathlib.Path(path).parent, "lmdb", overwrite=True)
        except fastdata.ConvertError as error:
            assert "cannot write" in str(error) and "Permission denied" in str(error), error
        else:
            raise AssertionError("could be written")
    print("read by", os.getuid())
"""


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root can become another user")
def test_another_user_reads_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    data = [samples.write(folder, layout) for layout in samples.LAYOUTS]
    for parent in (folder, *folder.rglob("*")):
        parent.chmod(0o555 if parent.is_dir() else 0o444)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o001)
    script = textwrap.dedent(SCRIPT).format(paths=[path for path in sys.path if path], data=data)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env={"HOME": "/", "PATH": "/bin"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "read by 65534\n", "")


def test_a_users_own_lmdb_environment_is_no_matter(tmp_path: Path) -> None:
    path = samples.write(tmp_path, "lmdb")
    with lmdb.open(path, readonly=True, lock=False) as environment, environment.begin() as transaction:
        assert samples.read(path) == samples.expected()
        with fastdata.open(path) as reader:
            assert transaction.get(b"dog/1.jpg") == reader[1].fields["jpg"]
    with fastdata.open(path) as reader:
        assert reader[2].key
        with lmdb.open(path) as environment, environment.begin() as transaction:  # with a lock file, as by default
            assert transaction.get(b"dog/1.cls") == b"1"
        assert samples.content(reader) == samples.expected()
    assert samples.read(path) == samples.expected()


def test_few_descriptors_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastdata.formats.files.MOST_KEPT", 3)
    path = samples.write(tmp_path, "shards", shard_size=1)
    listing, scratch = "/proc/self/fd", Scratch()
    with fastdata.open(path) as reader:
        views = []
        for _ in range(2):
            for row in range(len(reader)):
                assert reader[row].fields == samples.RECORDS[row].fields
                assert bytes(reader.image(row, scratch)[1]) == samples.RECORDS[row].fields["jpg"]
                if os.path.isdir(listing):
                    names = [os.path.realpath(os.path.join(listing, name)) for name in os.listdir(listing)]
                    # + 1: the index
                    assert sum(name.startswith(path) for name in names) <= 3 + 3 + 1 + len(views)
        views.append(reader.image(3)[1])
    assert bytes(views[0]) == samples.RECORDS[3].fields["jpg"]


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs Linux's smaps")
def test_what_is_read_into_scratch_memory_leaves_nothing_of_the_file_in_the_process(tmp_path: Path) -> None:
    path = tmp_path / "set.tar"
    with fastdata.create(path) as writer:
        for number in range(256):
            writer.write(fastdata.Record(f"r{number}", {"jpg": bytes([number]) * 250_000}))

    def mapped() -> int:
        sizes, ours = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if not line.partition(" ")[0].endswith(":"):
                ours = line.endswith(str(path))
            elif ours and line.startswith("Rss:"):
                sizes += int(line.split()[1]) << 10
        return sizes

    scratch = Scratch()
    with fastdata.open(path) as reader:
        assert all(reader.image(number, scratch)[1][-1] == number for number in range(256))
        assert mapped() < 4 << 20
        assert all(reader.image(number)[1][-1] == number for number in range(256))
        assert mapped() < 4 << 20
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        assert whole[:: mmap.PAGESIZE]
        assert mapped() > 32 << 20  # so it can be seen this way


def test_threads_have_scratch_memory_of_their_own(tmp_path: Path) -> None:
    path, scratch = samples.write(tmp_path, "lmdb"), Scratch()
    with fastdata.open(path) as reader, ThreadPoolExecutor(1) as other:
        here = reader.image(3, scratch)[1]
        there = other.submit(reader.image, 4, scratch).result()[1]
        blobs = [samples.RECORDS[row].fields["jpg"] for row in (3, 4)]
        assert [bytes(here), bytes(there)] == blobs


@pytest.mark.parametrize("layout", ["lmdb", "shards"])  # the others hold their index in the same file
def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path: Path, layout: str) -> None:
    """Through a map it would be a crash; a new reader refuses it anyway."""
    path, scratch = samples.write(tmp_path, layout), Scratch()
    with fastdata.open(path) as reader:
        last = len(reader) - 1
        assert bytes(reader.image(last, scratch)[1]) == samples.RECORDS[last].fields["jpg"]
        for file in Path(path).iterdir():
            if file.suffix in (".mdb", ".tar"):
                os.truncate(file, 5000)
        with pytest.raises(fastdata.FormatError, match="5000 bytes, but its data set says"):
            reader.image(last, scratch)
