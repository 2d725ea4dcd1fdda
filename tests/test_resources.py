"""Resources that run out are not damage: never a bad sample, in any mode of the loader, data set or command."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import fastdata
from fastdata.codec.decode import decode
from fastdata.codec.encode import encode
from fastdata.errors import (
    CacheError,
    DecodeError,
    FormatError,
    OutOfMemoryError,
    ResourceError,
    as_resource_error,
    resource_error,
    resource_words,
)
from tests import images
from tests.loader_targets import RunsOut, too_large_to_send


def raised(error: Exception, cause: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "Too many open files", "a.tar"), ResourceError),
        (OSError(errno.ENFILE, "Too many open files in system"), ResourceError),
        (OSError(errno.EIO, "Input/output error"), ResourceError),
        (OSError(errno.ESTALE, "Stale file handle"), ResourceError),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), OutOfMemoryError),
        (OSError("unable to open file: errno = 24, error message = 'Too many open files'"), ResourceError),
        (ImportError("libx.so: cannot open shared object file: Too many open files"), ResourceError),
        (MemoryError(), OutOfMemoryError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), OutOfMemoryError),
        (RuntimeError("can't start new thread"), ResourceError),
        (raised(FormatError("it cannot be read"), OSError(errno.EMFILE, "Too many open files")), ResourceError),
        (raised(DecodeError("no image"), MemoryError()), OutOfMemoryError),
        (ResourceError("known"), ResourceError),
        (OSError(errno.ENOENT, "No such file or directory"), None),
        (OSError(errno.EACCES, "Permission denied"), None),
        (OSError("image file is truncated"), None),
        (DecodeError("the data end early"), None),
        (CacheError("it would not fit"), None),
        (ValueError("oh"), None),
    ],
)
def test_errors_of_the_machine_are_distinguished(error: Exception, kind: type[Exception] | None) -> None:
    assert resource_error(error) is kind
    made = as_resource_error(error, "set: record 'k'")
    assert type(made) is (kind or type(None))
    if kind is not None and not isinstance(error, ResourceError):
        assert str(made).startswith("set: record 'k': ")
        assert "says nothing about the data" in resource_words(error)


def test_an_error_of_the_machine_keeps_its_number_and_is_reported_once() -> None:
    made = as_resource_error(OSError(errno.EMFILE, "Too many open files", "a.tar"), "a.tar")
    assert made is not None
    assert made.errno == errno.EMFILE
    assert str(made).startswith("a.tar: Too many open files; ")
    again = as_resource_error(made, "a.tar: record 'k'")
    assert again is not None
    assert str(again).startswith("a.tar: record 'k': a.tar: Too many open files; ")
    assert as_resource_error(again, "a.tar: record 'k'") is again


@pytest.mark.parametrize("name", ["d.lmdb", "d.h5", "d.tar", "sh", "sh/*.tar", "images"])
def test_opening_reports_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name == "images":
        (tmp_path / name / "c").mkdir(parents=True)
        (tmp_path / name / "c" / "x.png").write_bytes(b"x")
    else:
        path = tmp_path / name.partition("/")[0]
        with fastdata.create(path, format=None if path.suffix else "tar") as writer:
            writer.write(fastdata.Record("k", {"png": b"x"}))
    monkeypatch.setattr(os, "scandir", raising(no_files))
    monkeypatch.setattr("fastdata.formats.descriptors._WAIT_S", 0)
    monkeypatch.setattr(os, "open", raising(no_files))
    with pytest.raises(fastdata.ResourceError, match="Too many open files"):
        fastdata.open(tmp_path / name)


def test_a_class_whose_folder_cannot_be_listed_now_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes(b"x")
    list_folder = os.scandir

    def listed(path: str) -> Any:
        if str(path).rstrip("/").endswith("b"):
            raise no_files()
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", listed)
    with pytest.raises(fastdata.ResourceError, match="Too many open files"):
        fastdata.open(tmp_path)


def test_a_circle_of_causes_ends() -> None:
    error = ValueError("oh")
    error.__cause__ = error
    assert resource_error(error) is None


COUNT = 24
WORKERS = [
    {"num_workers": 0},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "worker_mode": "thread"},
]
IDS = ["none", "processes", "threads"]


def no_files() -> OSError:
    """Made anew each time: an error keeps what it has passed through."""
    return OSError(errno.EMFILE, "Too many open files", "shard.tar")


@pytest.fixture(params=["d.lmdb", "d.h5", "d.tar"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = tmp_path / request.param
    with fastdata.create(place) as writer:
        for i in range(COUNT):
            blob = encode(np.full((16, 16, 3), i, np.uint8), "png")
            writer.write(fastdata.Record(f"r/{i}", {"png": blob, "cls": b"%d" % i, "txt": b"words"}))
    return str(place)


def disk_fails() -> OSError:
    return OSError(errno.EIO, "Input/output error")


def raising(make: Callable[[], Exception]) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise make()

    return fail


def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every read of a data file fail from now on, also in workers that are forked."""
    for name in ("_pread", "_preadv"):
        monkeypatch.setattr(f"fastdata.formats.files.{name}", raising(no_files))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize(
    ("red", "how"),
    [(13, no_files), (0, MemoryError), (13, disk_fails)],  # the first one determines the layout
)
def test_what_runs_out_in_a_transform_is_not_skipped(
    tmp_path: Path, workers: dict[str, Any], red: int, how: Callable[[], Exception]
) -> None:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        for i in range(COUNT):
            writer.write(fastdata.Record(f"r/{i}", {"png": encode(np.full((16, 16, 3), i, np.uint8), "png")}))
    options = {"batch_size": 4, "transform": RunsOut(red, how), "on_error": "skip", **workers}
    with fastdata.DataLoader(str(tmp_path / "d.lmdb"), **options) as batches:
        iterator = iter(batches)
        for _ in range(red // 4):  # it is raised in its turn
            next(iterator)
        with pytest.raises(fastdata.ResourceError, match=f"'r/{red}'.*says nothing about the data") as caught:
            next(iterator)
        assert isinstance(caught.value, fastdata.OutOfMemoryError) == (how is MemoryError)
        assert batches.skipped == []


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_what_runs_out_while_reading_is_not_skipped(
    path: str, monkeypatch: pytest.MonkeyPatch, workers: dict[str, Any]
) -> None:
    with fastdata.DataLoader(path, 4, transform=fastdata.CenterCrop(8), on_error="skip", **workers) as batches:
        breaks(monkeypatch)
        with pytest.raises(fastdata.ResourceError, match=r"'r/0'.*Too many open files.*ulimit -n"):
            list(batches)
        assert batches.skipped == []


def test_memory_for_what_is_sent_is_not_an_option_error(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "d.lmdb") as writer:
        writer.write(fastdata.Record("k", {"png": encode(np.full((16, 16, 3), 0, np.uint8), "png")}))
    options = {"transform": too_large_to_send, "collate_fn": list, "num_workers": 1, "on_error": "skip"}
    with (
        fastdata.DataLoader(str(tmp_path / "d.lmdb"), 1, **options) as batches,
        pytest.raises(fastdata.OutOfMemoryError, match="record 'k': out of memory"),
    ):
        next(iter(batches))


def test_other_fields_report_it_too(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fastdata.DataLoader(path, 4, fields=("index", "txt"), num_workers=0) as batches:
        breaks(monkeypatch)
        with pytest.raises(fastdata.ResourceError, match=r"'r/0'.*Too many open files"):
            next(iter(batches))


@pytest.mark.parametrize("make", [fastdata.ImageDataset, fastdata.ImageStream])
def test_data_sets_do_not_report_it_as_damage(
    path: str, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any]
) -> None:
    data = make(path)
    breaks(monkeypatch)
    with pytest.raises(fastdata.ResourceError, match=r"record 'r/0': .*Too many open files"):
        next(iter(data))


@pytest.mark.parametrize("make", [fastdata.ImageDataset, fastdata.ImageStream])
def test_decoders_that_run_out_of_memory_report_no_damage(
    path: str, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any]
) -> None:
    data = make(path)
    monkeypatch.setattr(cv2, "imdecode", raising(MemoryError))
    with pytest.raises(fastdata.OutOfMemoryError, match=r"record 'r/0': out of memory"):
        next(iter(data))


def opencv_lacks_memory() -> Exception:
    error = cv2.error("Failed to allocate 8 bytes")
    error.code = cv2.Error.StsNoMem
    return error


def test_every_decoder_distinguishes_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = {"Pillow": images.saved(images.photo(8, 8), "GIF"), "OpenCV": images.png(images.photo(8, 8))}
    monkeypatch.setattr("PIL.Image.open", raising(MemoryError))
    with pytest.raises(MemoryError):
        decode(blobs["Pillow"])
    monkeypatch.setattr(cv2, "imdecode", raising(opencv_lacks_memory))
    with pytest.raises(MemoryError):
        decode(blobs["OpenCV"])
