"""ImageDataset: ImageFolder's attributes, every format, every start method, every kind of transform."""

from __future__ import annotations

import copy
import functools
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, DataLoader

import fastdata
from fastdata import CacheError, DecodeError, ImageDataset, ImageStream, Manifest, OptionError, Record, cache
from fastdata.cache import CachedReader
from fastdata.errors import CutError
from fastdata.formats.base import Packed, PackedReader, map_file
from fastdata.formats.index import DTYPES, pack, unpack
from tests import images

COUNT = 11
FORMATS = ("set.lmdb", "set.h5", "set.tar", "shards", "folder")


def make(root: Path, name: str, count: int = COUNT, options: dict[str, Any] | None = None) -> Path:
    """The same pictures in each format: class 0 and 1 in turn; in the folder class by class."""
    path = root / name
    labels = sorted(i % 2 for i in range(count))
    blobs = [images.jpeg(images.photo(32, 24, seed=i)) for i in range(count)]
    if name == "folder":
        for i, label in enumerate(labels):
            target = path / ("cat", "dog")[label] / f"{i:03}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(blobs[i])
        return path
    kind = {"format": "tar", "shard_size": 4000} if name == "shards" else {}
    with fastdata.create(path, classes=["cat", "dog"], options=options, **kind) as writer:
        for i, label in enumerate(labels):
            key = f"{('cat', 'dog')[label]}/{i:03}"
            writer.write(Record(key, {"jpg": blobs[i], "cls": b"%d" % label}, key + ".jpg"))
    return path


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path, request.param)


def test_attributes_are_image_folders(path: Path) -> None:
    data = ImageDataset(path)
    assert len(data) == COUNT
    assert data.classes == ["cat", "dog"]
    assert data.class_to_idx == {"cat": 0, "dog": 1}
    assert data.targets.dtype == np.int64
    assert data.targets.tolist() == [0] * 6 + [1] * 5
    assert data.samples[6] == ("dog/006.jpg", 1)
    assert data.imgs is data.samples
    assert data.reader.keys[6] == "dog/006"
    assert f"{COUNT} images, 2 classes" in repr(data)
    assert [label for _, label in data] == data.targets.tolist()  # type: ignore[attr-defined]


def test_pictures_belong_to_the_caller(path: Path) -> None:
    """Contiguous, writable, RGB; torch takes them without a warning; changing one changes nothing else."""
    for data in (ImageDataset(path), ImageDataset(path, cache="ram")):
        picture, label = data[3]
        assert type(label) is int
        assert (picture.dtype, picture.shape) == (np.uint8, (24, 32, 3))
        assert picture.flags.c_contiguous
        assert picture.flags.writeable
        before = picture.copy()
        assert np.abs(before.astype(int) - images.photo(32, 24, seed=3)).mean() < 12
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.from_numpy(picture).zero_()
        assert np.array_equal(data[3][0], before)


def test_raw_pixels_belong_to_the_caller_too(tmp_path: Path) -> None:
    from fastdata.codec.encode import encode

    rgb = images.photo(8, 6)
    with fastdata.create(tmp_path / "raw.h5") as writer:
        writer.write(Record("a", {"npy": encode(rgb, "npy")}))
    for data in (ImageDataset(tmp_path / "raw.h5"), ImageDataset(tmp_path / "raw.h5", cache="ram")):
        picture, label = data[0]
        assert label == -1
        picture[:] = 0
        assert np.array_equal(data[0][0], rgb)


def test_batched_fetch_is_the_same(path: Path) -> None:
    data = ImageDataset(path)
    for (picture, label), index in zip(data.__getitems__([4, 0, 4]), (4, 0, 4), strict=True):
        assert label == data[index][1]
        assert np.array_equal(picture, data[index][0])


def test_indices_end(path: Path) -> None:
    data = ImageDataset(path)
    assert np.array_equal(data[-1][0], data[COUNT - 1][0])
    with pytest.raises(IndexError):
        data[COUNT]


@pytest.mark.parametrize("cached", [None, "ram"])
def test_copies_read_the_same(path: Path, cached: Any) -> None:
    data = ImageDataset(path, transform=np.flipud, cache=cached)
    expected, blob = data[2][0], pickle.dumps(data)
    _ = data.samples
    assert len(pickle.dumps(data)) == len(blob)  # lists made when asked for do not travel
    for again in (pickle.loads(blob), copy.deepcopy(data), copy.copy(data)):
        assert np.array_equal(again[2][0], expected)
        assert again.samples == data.samples


def test_a_reader_will_do(path: Path) -> None:
    with fastdata.open(path) as reader:
        assert ImageDataset(reader).reader is reader
        cached = ImageDataset(reader, cache="ram")
        assert isinstance(cached.reader, CachedReader)
        assert cached[1][1] == reader.labels[1]


def _plus(picture: Any, label: int) -> tuple[Any, int]:
    return picture, label + 100


def test_transforms_are_called(path: Path) -> None:
    picture, label = ImageDataset(path, transform=np.shape, target_transform=str)[0]
    assert (picture, label) == ((24, 32, 3), "0")
    assert ImageDataset(path, transforms=_plus)[0][1] == 100
    data = ImageDataset(path)
    data.transform = np.shape
    assert data[0][0] == (24, 32, 3)
    data.transform = None
    assert data[0][0].shape == (24, 32, 3)


def _foreign(home: str, bases: tuple[type, ...] = (object,), **methods: Any) -> type:
    return type("Foreign", bases, {**methods, "__module__": home})


def _shape(_: Any, picture: Any) -> tuple[Any, ...]:
    return type(picture), tuple(picture.shape), str(picture.dtype)


TENSOR = (torch.Tensor, (3, 24, 32), "torch.uint8")
ARRAY = (np.ndarray, (24, 32, 3), "uint8")
Torchvision = _foreign("torchvision.transforms.v2", __call__=_shape)
TorchvisionModule = _foreign("torchvision.transforms.v2", (torch.nn.Module,), forward=_shape)
Child = _foreign("user.code", (Torchvision,))


def _function(picture: Any) -> Any:
    return _shape(None, picture)


def _library_function(picture: Any, size: int = 0) -> Any:
    return _shape(None, picture)


_library_function.__module__ = "torchvision.transforms.functional"


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (Torchvision(), TENSOR),
        (TorchvisionModule(), TENSOR),
        (Child(), TENSOR),
        (torch.nn.Sequential(torch.nn.Identity(), TorchvisionModule()), TENSOR),
        (functools.partial(_library_function, size=3), TENSOR),
        (Torchvision().__call__, TENSOR),
        (_function, ARRAY),
        (functools.partial(_function), ARRAY),
        (_foreign("user.code", __call__=_shape)(), ARRAY),
        (_foreign("user.code", (torch.nn.Module,), forward=_shape)(), ARRAY),
    ],
)
def test_each_library_gets_its_own_form(path: Path, transform: Callable[..., Any], expected: Any) -> None:
    assert ImageDataset(path, transform=transform)[0][0] == expected


def test_albumentations_gets_keywords(path: Path) -> None:
    def call(_: Any, *, image: Any) -> dict[str, Any]:
        return {"image": (type(image), image.shape)}

    transform = _foreign("albumentations.core.composition", __call__=call)()
    assert ImageDataset(path, transform=transform)[0] == ((np.ndarray, (24, 32, 3)), 0)
    assert ImageDataset(path, transforms=transform)[6] == ((np.ndarray, (24, 32, 3)), 1)


def test_compiled_modules_get_tensors(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is on its way out, but people have such transforms
        transform = torch.jit.script(torch.nn.Identity())
    assert ImageDataset(path, transform=transform)[0][0].shape == (3, 24, 32)


def test_what_takes_only_pil_images_is_refused_with_the_way_out(path: Path) -> None:
    to_tensor = type("ToTensor", (), {"__module__": "torchvision.transforms.transforms", "__call__": _shape})
    compose = _foreign("torchvision.transforms.transforms", __call__=_shape)()
    compose.transforms = [Torchvision(), to_tensor()]
    for transform in (compose, to_tensor()):
        with pytest.raises(OptionError, match=r"ToTensor takes PIL images.*v2\.ToDtype"):
            ImageDataset(path, transform=transform)


def test_arguments_that_cannot_be_are_refused(path: Path) -> None:
    with pytest.raises(OptionError, match="either transforms"):
        ImageDataset(path, transform=np.flipud, transforms=_plus)
    with pytest.raises(OptionError, match='cache must be "ram" or None'):
        ImageDataset(path, cache="disk")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="must be callable"):
        ImageDataset(path, transform=3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        ImageDataset(path / "none")


def test_a_cache_that_would_not_fit_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "free_memory", lambda: 1000)
    with pytest.raises(CacheError, match="half of"):
        ImageDataset(path, cache="ram")


def _damaged(tmp_path: Path, blob: bytes, options: dict[str, Any] | None = None) -> ImageDataset:
    with fastdata.create(tmp_path / "set.h5", options=options) as writer:
        writer.write(Record("good/1", {"jpg": images.jpeg(images.photo(32, 24))}))
        writer.write(Record("bad/1", {"jpg": blob}))
    return ImageDataset(tmp_path / "set.h5")


def test_damage_names_data_set_and_key(tmp_path: Path) -> None:
    data = _damaged(tmp_path, b"no picture")
    with pytest.raises(DecodeError, match=r"set\.h5: record 'bad/1': ") as caught:
        data[1]
    assert isinstance(caught.value.__cause__, DecodeError)
    assert data[0][0].shape == (24, 32, 3)


def test_cut_pictures_follow_the_data_sets_rule(tmp_path: Path) -> None:
    blob = images.jpeg(images.photo(64, 48))
    cut = blob[: len(blob) * 6 // 10]
    (tmp_path / "a").mkdir()
    with pytest.raises(CutError, match="bad/1"):
        _damaged(tmp_path / "a", cut)[1]
    assert _damaged(tmp_path, cut, {"keep_damaged": True})[1][0].shape == (48, 64, 3)


def test_alpha_follows_the_data_sets_rule(tmp_path: Path) -> None:
    clear = images.png(np.zeros((4, 4, 4), np.uint8))
    for alpha, level in ((None, 255), ("black", 0)):
        path = tmp_path / f"{alpha}.h5"
        with fastdata.create(path, options={"alpha": alpha} if alpha else None) as writer:
            writer.write(Record("a", {"png": clear}))
        assert ImageDataset(path)[0][0].max() == level


LOADERS = [(None, 0), ("fork", 1), ("fork", 4), ("forkserver", 1), ("forkserver", 4), ("spawn", 1), ("spawn", 4)]


def _as_tensor(picture: Any) -> torch.Tensor:
    return torch.from_numpy(picture)


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
    raw = {
        "start": np.arange(ENTRIES + 1), "field": numbers * 0, "file": numbers * 0, "offset": numbers % 90,
        "size": numbers * 0 + 10, "crc": numbers * 0, "label": numbers % 1000, "key_end": ends, "key_bytes": digits,
        "path_end": ends, "path_bytes": digits, "hash": numbers, "hash_row": numbers,
    }  # fmt: skip
    columns = {name: np.asarray(raw[name], np.dtype(kind)) for name, kind in DTYPES.items()}
    (folder / "index").write_bytes(b"".join(pack(columns)))
    (folder / "payload").write_bytes(bytes(100))
    mapped = unpack(map_file(str(folder / "index")), "index")
    manifest = Manifest("tar", ENTRIES, ("jpg",), fingerprint="x")
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
    monkeypatch.setattr("fastdata.datasets.pictures.render", _no_decoding)
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
