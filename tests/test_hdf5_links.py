"""An HDF5 file that leads elsewhere: links, external storage and virtual data sets are refused, and not followed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import fastdata
from fastdata.errors import FormatError
from tests import samples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(samples.write(tmp_path, "hdf5"))


NAMES = ["index/offset", "index/key_bytes", "index", "manifest", "payload"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["external", "soft"])
def test_links_are_refused(path: Path, name: str, kind: str) -> None:
    """The other file is a pipe: to open it would wait."""
    with h5py.File(path, "r+") as file:
        file.move(name, "moved")
        file[name] = h5py.ExternalLink("other.h5", "/x") if kind == "external" else h5py.SoftLink("/moved")
    os.mkfifo(path.parent / "other.h5")
    with pytest.raises(FormatError, match=r"data\.h5: .*is a link to somewhere else"):
        fastdata.open(path)


def external(file: h5py.File, name: str, data: np.ndarray) -> None:
    raw = Path(file.filename).parent / "raw"
    raw.write_bytes(data.tobytes())
    file.create_dataset(name, data.shape, data.dtype, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])


def virtual(file: h5py.File, name: str, data: np.ndarray) -> None:
    other = str(Path(file.filename).parent / "source.h5")
    with h5py.File(other, "w") as source:
        source["x"] = data
    layout = h5py.VirtualLayout(data.shape, data.dtype)
    layout[:] = h5py.VirtualSource(other, "x", data.shape)
    file.create_virtual_dataset(name, layout)


def chunked(file: h5py.File, name: str, data: np.ndarray) -> None:
    file.create_dataset(name, data=data, chunks=(7,))


def compact(file: h5py.File, name: str, data: np.ndarray) -> None:
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_layout(h5py.h5d.COMPACT)
    kind, space = h5py.h5t.py_create(data.dtype, logical=True), h5py.h5s.create_simple(data.shape)
    h5py.h5d.create(file.id, name.encode(), kind, space, options)


@pytest.mark.parametrize("name", ["index/offset", "manifest"])
@pytest.mark.parametrize("store", [external, virtual, chunked, compact])
def test_data_that_do_not_lie_in_one_piece_are_refused(
    path: Path, name: str, store: Callable[[h5py.File, str, np.ndarray], None]
) -> None:
    with h5py.File(path, "r+") as file:
        data = file[name][:]
        del file[name]
        store(file, name, data)
    with pytest.raises(FormatError, match=r"data\.h5: "):
        fastdata.open(path)


def test_a_group_or_another_type_in_a_columns_place_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for number in range(4):
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            del file["index/offset"]
            if number == 0:
                file.create_group("index/offset")
            elif number == 1:
                file["index/offset"] = np.zeros(5, np.float32)
            elif number == 2:
                file["index/offset"] = np.zeros((5, 2), np.int64)
            else:
                file["index/offset"] = "text"
        with pytest.raises(FormatError, match=r"data\.h5: cut or damaged HDF5"):
            fastdata.open(path)


def test_the_file_that_was_looked_at_is_the_one_that_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes its path meanwhile is not opened."""
    whole, real = path.read_bytes(), h5py.File

    def swap(*arguments: object, **options: object) -> object:
        path.unlink()
        os.mkfifo(path)
        return real(*arguments, **options)

    monkeypatch.setattr(h5py, "File", swap)
    reader = fastdata.open(path)
    monkeypatch.undo()
    assert len(reader) == len(samples.RECORDS)
    path.unlink()
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="replaced"):
        reader[0]
    reader.close()
