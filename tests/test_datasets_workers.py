"""ImageDataset in a DataLoader: the same bytes under every start method, and memory that stays flat."""

from __future__ import annotations

import mmap
import sys
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, DataLoader

import fastdata
from fastdata import ImageDataset, ImageStream, Manifest
from fastdata.formats.index import DTYPES, index_hash, pack, unpack
from fastdata.formats.packed import Packed, PackedReader
from tests.test_datasets import COUNT, FORMATS, make

pytestmark = pytest.mark.slow


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path, request.param)


LOADERS = [(None, 0), ("fork", 1), ("fork", 4), ("forkserver", 1), ("forkserver", 4), ("spawn", 1), ("spawn", 4)]


def _as_tensor(image: Any) -> torch.Tensor:
    return torch.from_numpy(image)


@pytest.mark.parametrize(("method", "workers"), LOADERS)
def test_a_data_loader_gives_the_same_bytes(tmp_path: Path, method: str | None, workers: int) -> None:
    """All formats and a cache in one loader, after the parent has read from each."""
    parts = [ImageDataset(make(tmp_path, name), transform=_as_tensor) for name in FORMATS]
    parts.append(ImageDataset(tmp_path / "set.lmdb", transform=_as_tensor, cache="ram"))
    expected = [[(image.clone(), label) for image, label in part] for part in parts]  # type: ignore[attr-defined]
    assert all(torch.equal(a[0], b[0]) for part in expected[1:] for a, b in zip(part, expected[0], strict=True))
    loader = DataLoader(
        ConcatDataset(parts),
        batch_size=4,
        num_workers=workers,
        multiprocessing_context=method,
        persistent_workers=workers > 0,
        worker_init_fn=fastdata.seed_worker,
    )
    flat = [sample for part in expected for sample in part]
    for _ in range(2):
        batches = list(loader)
        assert torch.equal(torch.cat([batch[0] for batch in batches]), torch.stack([image for image, _ in flat]))
        assert torch.cat([batch[1] for batch in batches]).tolist() == [label for _, label in flat]


def _threads(_: Any) -> int:
    import cv2

    return int(cv2.getNumThreads())


def test_opencv_works_alone_in_workers_and_is_left_alone_here(path: Path) -> None:
    before = _threads(None)
    data = ImageDataset(path, transform=_threads)
    loader = DataLoader(data, batch_size=COUNT, num_workers=1, multiprocessing_context="fork")
    assert max(next(iter(loader))[0].tolist()) <= 1
    assert data[0][0] == before


ENTRIES = 1_000_000


def _tiny_entries(folder: Path) -> PackedReader:
    """A reader of a million records of 10 bytes, whose mapped index is made without writing them one by one."""
    numbers = np.arange(ENTRIES)
    ends = np.arange(ENTRIES + 1) * 7
    digits = (numbers[:, None] // 10 ** np.arange(6, -1, -1) % 10 + 48).astype(np.uint8).ravel()
    crc = numbers * 0 + zlib.crc32(bytes(10))
    raw = {
        "start": np.arange(ENTRIES + 1), "field": numbers * 0, "file": numbers * 0, "offset": numbers % 90,
        "size": numbers * 0 + 10, "crc": crc, "label": numbers % 1000, "key_end": ends, "key_bytes": digits,
        "path_end": ends, "path_bytes": digits, "hash": numbers, "hash_row": numbers,
    }  # fmt: skip
    columns = {name: np.asarray(raw[name], np.dtype(kind)) for name, kind in DTYPES.items()}
    (folder / "index").write_bytes(b"".join(pack(columns)))
    (folder / "payload").write_bytes(bytes(100))
    with open(folder / "index", "rb") as file:
        mapped = unpack(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), "index")
    manifest = Manifest("tar", ENTRIES, ("jpg",), fingerprint="x", index_sha256=index_hash(mapped))
    return PackedReader(Packed("tiny", manifest, mapped, [str(folder / "payload")], [100], cast("Any", None)))


def _anonymous(process: psutil.Process) -> int:
    """Bytes of a process's own memory, shared pages by their share: file pages are the system's to take back."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def _tree() -> int:
    here = psutil.Process()
    return sum(_anonymous(process) for process in (here, *here.children(recursive=True)))


def _nothing(_: Any) -> int:
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["map", "stream"])
def test_memory_stays_flat_over_a_million_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Workers that merely read the index must not copy it, page by page."""
    for step in ("open", "render"):
        monkeypatch.setattr(f"fastdata.sample.SampleDecoder.{step}", _no_decoding)
    reader = _tiny_entries(tmp_path)
    data: Any = ImageDataset(reader, transform=_nothing)
    if kind == "stream":
        data = ImageStream(reader, transform=_nothing, shuffle=True)
    workers = {"num_workers": 4, "multiprocessing_context": "fork", "persistent_workers": True}
    loader: DataLoader[Any] = DataLoader(data, batch_size=5000, **cast("Any", workers))
    batches = iter(loader)
    seen, total = next(batches)[1].numel(), 0
    before = _tree()
    for _, label in batches:
        seen, total = seen + label.numel(), total + int(label.sum())
    after = _tree()  # the workers are still there
    assert (seen, total > 0) == (ENTRIES, True)
    assert after < 1.1 * before, f"{before / 1e6:.0f} MB became {after / 1e6:.0f} MB"


def _no_decoding(*_: Any, **__: Any) -> NDArray[np.uint8]:
    return _BLACK


_BLACK = np.zeros((1, 1, 3), np.uint8)
