"""Plain lmdb, h5py and webdataset read what we write; we read what webdataset writes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import lmdb
import pytest

import fastdata
from fastdata import Record, key_from_path
from tests import samples

UGLY = [
    "1.5m_view.jpg", "a.b.c.png", ".hidden.jpg", "no_suffix", "UPPER.JPG", "__meta__/x.jpg", "__key__.jpg", "cat/..png",
    "dots/../x.jpg", "a//b.jpg", "/abs.jpg", "nul\0.jpg", "new\nline.jpg", "tab\t.jpg", "bad\udcff\udcfe.jpg",
    "ünïcödé/ñ.jpg",
    "日本/写真.jpg", "😀.jpg", "e\u0301.jpg", "\u00e9.jpg", "per%cent.jpg", "%41.jpg", "%2E.jpg", "a b.jpg",
    " lead.jpg",
    "trail .jpg", "q'uote.jpg", 'dq"uote.jpg', "back\\slash.jpg", "star*.jpg", "q?.jpg", "br{a,b}.jpg", "sq[1].jpg",
    "$x.jpg",
    "tilde~.jpg", "hash#.jpg", "amp&.jpg", "semi;.jpg", "eq=.jpg", "at@.jpg", "plus+.jpg", "ex!.jpg", "caret^.jpg",
    "-dash.jpg", "n" * 100 + ".jpg", "d" * 120 + "/" + "n" * 120 + ".jpg", "é" * 200 + ".jpg", "x" * 600 + ".jpg",
    "__/a.jpg", "\x7f\x1b.jpg", "\u2028\u0085.jpg",
]  # fmt: skip
UGLY_RECORDS = [
    Record(key_from_path(path), {"jpg": b"%d" % i, "cls": b"%d" % (i % 3), "mask.png": b"m\0"}, path)
    for i, path in enumerate(UGLY)
]


@pytest.fixture(scope="module")
def webdataset() -> Iterator[Any]:
    """Importing it imports torch; its own warnings are not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import webdataset

        yield webdataset


def plain(webdataset: Any, urls: list[str]) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))


def test_ugly_paths_make_different_keys_that_come_back_from_every_format(tmp_path: Path) -> None:
    assert len({item.key for item in UGLY_RECORDS}) == len(UGLY) >= 50
    for layout in samples.LAYOUTS:
        path = samples.write(tmp_path, layout, UGLY_RECORDS)
        assert samples.read(path) == samples.expected(UGLY_RECORDS)


@pytest.mark.parametrize("layout", ["tar", "shards"])
@pytest.mark.parametrize("records", [samples.RECORDS, UGLY_RECORDS], ids=["usual", "ugly"])
def test_plain_webdataset_reads_our_tars(tmp_path: Path, webdataset: Any, layout: str, records: list[Record]) -> None:
    path = Path(samples.write(tmp_path, layout, records))
    urls = [str(path)] if layout == "tar" else sorted(str(shard) for shard in path.glob("*.tar"))
    found = plain(webdataset, urls)
    assert [sample["__key__"] for sample in found] == [item.key for item in records]
    for sample, item in zip(found, records, strict=True):
        fields = {name: blob for name, blob in sample.items() if not name.startswith("__")}
        assert fields == item.fields


def test_webdataset_decodes_raw_pixels_and_labels(tmp_path: Path, webdataset: Any) -> None:
    import io

    import numpy as np

    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    out = io.BytesIO()
    np.save(out, array)
    path = samples.write(tmp_path, "tar", [Record("a", {"npy": out.getvalue(), "cls": b"2"})])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (sample,) = webdataset.WebDataset(path, shardshuffle=False).decode()
    assert np.array_equal(sample["npy"], array)
    assert sample["cls"] == 2


def test_we_read_what_webdataset_writes(tmp_path: Path, webdataset: Any, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [(f"{i:03d}", bytes([i]) * i * 50, i % 3) for i in range(1, 30)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with webdataset.ShardWriter(str(tmp_path / "w-%06d.tar"), maxcount=10, verbose=0) as writer:
            for key, blob, label in rows:
                writer.write({"__key__": f"dir.x/{key}", "jpg": blob, "cls": label, "json": {"n": key}})
    for place in (str(tmp_path), f"{tmp_path}/w-{{000000..000002}}.tar", f"{tmp_path}/w-*.tar"):
        with fastdata.open(place) as reader:
            assert list(reader.keys) == [f"dir.x/{key}" for key, _, _ in rows]
            assert [bytes(reader.image(i)[1]) for i in range(len(reader))] == [blob for _, blob, _ in rows]
            assert reader.labels.tolist() == [label for _, _, label in rows]
    capfd.readouterr()


def test_plain_lmdb_reads_ours(tmp_path: Path) -> None:
    path = samples.write(tmp_path, "lmdb", UGLY_RECORDS)
    with lmdb.open(path, readonly=True, lock=False) as environment, environment.begin() as transaction:
        wanted = {f"{item.key}.{name}".encode(): blob for item in UGLY_RECORDS for name, blob in item.fields.items()}
        assert dict(transaction.cursor()) == wanted
        assert transaction.get(b"ex!.jpg") == b"%d" % UGLY.index("ex!.jpg")


def test_plain_h5py_reads_ours(tmp_path: Path) -> None:
    """As the page of the format says."""
    with h5py.File(samples.write(tmp_path, "hdf5", UGLY_RECORDS)) as file:
        payload, index = file["payload"], file["index"]
        assert payload.chunks is None
        assert payload.compression is None
        fields = ["jpg", "cls", "mask.png"]
        for row, item in enumerate(UGLY_RECORDS):
            key = bytes(index["key_bytes"][index["key_end"][row] : index["key_end"][row + 1]])
            assert key.decode() == item.key
            for blob in range(index["start"][row], index["start"][row + 1]):
                begin = index["offset"][blob] - 65536
                value = payload[begin : begin + index["size"][blob]].tobytes()
                assert value == item.fields[fields[index["field"][blob]]]


def test_gnu_tar_lists_and_extracts_ours(tmp_path: Path) -> None:
    for layout in ("tar", "shards"):
        path = Path(samples.write(tmp_path, layout))
        for file in [path] if layout == "tar" else sorted(path.glob("*.tar")):
            out = tmp_path / f"out-{file.name}"
            out.mkdir()
            done = subprocess.run(["tar", "-xf", file, "-C", out], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
        extracted = {
            str(file.relative_to(tmp_path / root)): file.read_bytes()
            for root in tmp_path.glob(f"out-data{'.tar' if layout == 'tar' else '-*'}")
            for file in root.rglob("*.*")
            if file.is_file()
        }
        wanted = {f"{item.key}.{name}": blob for item in samples.RECORDS for name, blob in item.fields.items()}
        assert extracted == wanted


def test_formats_import_neither_torch_nor_more_than_they_need(tmp_path: Path) -> None:
    script = """
        import sys
        import fastdata
        for path in sys.argv[1:]:
            with fastdata.open(path) as reader:
                reader[0]
        loaded = {"torch", "cv2", "webdataset", "lmdb", "PIL"} & sys.modules.keys()
        assert not loaded, loaded
    """
    places = [samples.write(tmp_path, layout) for layout in samples.LAYOUTS]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), *places], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
