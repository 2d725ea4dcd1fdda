"""Writers with much and with large data: sizes on disk, memory, shards, threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import fastdata
from fastdata import Record
from fastdata.converters.writers import DEFAULT_SHARD_SIZE
from tests import samples


@pytest.fixture(params=samples.LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_field_of_20_megabytes(tmp_path: Path, layout: str) -> None:
    large = np.random.default_rng(0).bytes(20_000_000 - 2) + b"\0\0"
    path = samples.write(tmp_path, layout, [Record("a", {"jpg": large}), samples.RECORDS[4]])
    with fastdata.open(path) as reader:
        assert reader[0].fields["jpg"] == large
        assert reader[1] == samples.RECORDS[4]


def test_shards_end_at_the_size_asked_for(tmp_path: Path) -> None:
    path = Path(samples.write(tmp_path, "shards", shard_size=12_000))
    shards = sorted(path.glob("*.tar"))
    assert [shard.name for shard in shards] == [f"data-{number:06d}.tar" for number in range(len(shards))]
    assert len(shards) > 3
    assert all(shard.stat().st_size <= 12_000 or shard.stat().st_size > 12_345 for shard in shards)
    with fastdata.open([str(shard) for shard in shards]) as reader:
        assert samples.content(reader) == samples.expected()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs ulimit -v")
def test_tiny_records_then_large_ones_under_a_memory_limit(tmp_path: Path, layout: str) -> None:
    """The map size of an LMDB is never guessed from the first records, and never needs much address space."""
    script = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        import numpy as np, fastdata
        from fastdata.converters.writers import create
        path, kind = sys.argv[1:]
        noise = np.random.default_rng(0)
        with create(path, format=kind or None) as writer:
            for i in range(200):
                writer.write(fastdata.Record(f"a{i}", {"jpg": noise.bytes(30)}))
            for i in range(60):
                writer.write(fastdata.Record(f"b{i}", {"png": noise.bytes(1_500_000)}))
        with fastdata.open(path) as reader:
            assert len(reader) == 260 and not list(reader.verify())
    """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(script),
        samples.place(tmp_path, layout),
        "tar" if layout == "shards" else "",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("size", [12_000, 30_000])
def test_the_size_on_disk(tmp_path: Path, layout: str, size: int) -> None:
    """What `cp` and `tar` would see is at most 1.2 x the payload (LMDB has the most: whole pages)."""
    blobs = [samples.payload(number, size) for number in range(7)]
    records = [Record(f"class/{i:06d}", {"jpg": blobs[i % 7], "cls": b"0"}) for i in range(400)]
    path = samples.write(tmp_path, layout, records, shard_size=DEFAULT_SHARD_SIZE)
    assert sum(map(len, samples.files(path).values())) <= 1.2 * size * len(records)


def test_threads_may_write_different_data_sets(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(folder: Path) -> None:
        try:
            folder.mkdir()
            for layout in samples.LAYOUTS:
                assert samples.read(samples.write(folder, layout)) == samples.expected()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(tmp_path / str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
