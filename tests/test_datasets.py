"""ImageDataset: ImageFolder's attributes, every format, every start method, every kind of transform."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata
from fastdata import CacheError, DecodeError, ImageDataset, OptionError, Record, cache
from fastdata.cache import CachedReader
from fastdata.errors import CutError
from tests import images

COUNT = 11
FORMATS = ("set.lmdb", "set.h5", "set.tar", "shards", "folder")


def make(root: Path, name: str, count: int = COUNT, options: dict[str, Any] | None = None) -> Path:
    """The same images in each format: class 0 and 1 in turn; in the folder class by class."""
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


def test_images_belong_to_the_caller(path: Path) -> None:
    """Contiguous, writable, RGB; torch takes them without a warning; changing one changes nothing else."""
    for data in (ImageDataset(path), ImageDataset(path, cache="ram")):
        image, label = data[3]
        assert type(label) is int
        assert (image.dtype, image.shape) == (np.uint8, (24, 32, 3))
        assert image.flags.c_contiguous
        assert image.flags.writeable
        before = image.copy()
        assert np.abs(before.astype(int) - images.photo(32, 24, seed=3)).mean() < 12
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.from_numpy(image).zero_()
        assert np.array_equal(data[3][0], before)


def test_raw_pixels_belong_to_the_caller_too(tmp_path: Path) -> None:
    from fastdata.codec.encode import encode

    rgb = images.photo(8, 6)
    with fastdata.create(tmp_path / "raw.h5") as writer:
        writer.write(Record("a", {"npy": encode(rgb, "npy")}))
    for data in (ImageDataset(tmp_path / "raw.h5"), ImageDataset(tmp_path / "raw.h5", cache="ram")):
        image, label = data[0]
        assert label == -1
        image[:] = 0
        assert np.array_equal(data[0][0], rgb)


def test_batched_fetch_is_the_same(path: Path) -> None:
    data = ImageDataset(path)
    for (image, label), index in zip(data.__getitems__([4, 0, 4]), (4, 0, 4), strict=True):
        assert label == data[index][1]
        assert np.array_equal(image, data[index][0])


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


def _plus(image: Any, label: int) -> tuple[Any, int]:
    return image, label + 100


def test_transforms_are_called(path: Path) -> None:
    image, label = ImageDataset(path, transform=np.shape, target_transform=str)[0]
    assert (image, label) == ((24, 32, 3), "0")
    assert ImageDataset(path, transforms=_plus)[0][1] == 100
    data = ImageDataset(path)
    data.transform = np.shape
    assert data[0][0] == (24, 32, 3)
    data.transform = None
    assert data[0][0].shape == (24, 32, 3)


def _foreign(home: str, bases: tuple[type, ...] = (object,), **methods: Any) -> type:
    return type("Foreign", bases, {**methods, "__module__": home})


def _shape(_: Any, image: Any) -> tuple[Any, ...]:
    return type(image), tuple(image.shape), str(image.dtype)


TENSOR = (torch.Tensor, (3, 24, 32), "torch.uint8")
ARRAY = (np.ndarray, (24, 32, 3), "uint8")
Torchvision = _foreign("torchvision.transforms.v2", __call__=_shape)
TorchvisionModule = _foreign("torchvision.transforms.v2", (torch.nn.Module,), forward=_shape)
Child = _foreign("user.code", (Torchvision,))


def _function(image: Any) -> Any:
    return _shape(None, image)


def _library_function(image: Any, size: int = 0) -> Any:
    return _shape(None, image)


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
    with pytest.raises(OptionError, match="cache must be 'ram' or None"):
        ImageDataset(path, cache="disk")  # type: ignore[arg-type]
    for name in ("exact", "verify", "progress"):
        with pytest.raises(OptionError, match=f"{name} must be True or False, not 'no'"):
            ImageDataset(path, **{name: "no"})  # type: ignore[arg-type]
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
    data = _damaged(tmp_path, b"no image")
    with pytest.raises(DecodeError, match=r"set\.h5: record 'bad/1': ") as caught:
        data[1]
    assert isinstance(caught.value.__cause__, DecodeError)
    assert data[0][0].shape == (24, 32, 3)


def test_cut_images_follow_the_data_sets_rule(tmp_path: Path) -> None:
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
