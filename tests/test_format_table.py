"""The table of formats: an entry is all that a format needs, and nothing else knows a format by its name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastdata
from fastdata.errors import FormatError, OptionError, OutputExistsError
from fastdata.formats import DEFAULT_SHARD_SIZE, FORMATS, Format, format_of
from tests import samples, toy_format
from tests.command import run, strict

PACKAGE = Path(fastdata.__file__).parent


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Format:
    monkeypatch.setitem(FORMATS, "toy", toy_format.ENTRY)
    return toy_format.ENTRY


@pytest.mark.usefixtures("toy")
def test_records_of_a_new_format_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "data.toy"
    with fastdata.create(path, classes=samples.CLASSES) as writer:
        for record in samples.RECORDS:
            writer.write(record)
    assert samples.read(str(path)) == samples.expected()
    with pytest.raises(OutputExistsError):
        fastdata.create(path)
    with fastdata.create(path, format="toy", overwrite=True) as writer:
        writer.write(samples.RECORDS[3])
    moved = path.rename(tmp_path / "content decides")
    assert samples.read(str(moved)) == samples.expected(samples.RECORDS[3:4])


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_images_of_a_new_format_are_converted_inspected_and_loaded(tmp_path: Path, photo_folder: Path) -> None:
    path, tar = tmp_path / "data.toy", tmp_path / "data.tar"
    for target in (path, tar):
        assert fastdata.convert(photo_folder, target, resize=32, workers=1).kept == 12
    facts = strict(run("info", path, "--json")[1])
    assert (facts["format"], facts["count"], facts["options"]["resize"]) == ("toy", 12, 32)
    assert facts["fingerprint"] == strict(run("info", tar, "--json")[1])["fingerprint"]
    assert run("verify", path, "--quiet")[0] == 0
    with fastdata.DataLoader(path, 4, transform=[fastdata.RandomResizedCrop(16)], num_workers=2) as loader:
        assert sum(len(labels) for _, labels in loader) == 12
    stream = fastdata.ImageStream(path)
    assert len(stream) == len(list(stream)) == 12
    blob = bytearray(path.read_bytes())
    blob[len(toy_format.MAGIC) + 500] ^= 1
    path.write_bytes(blob)
    assert "has changed: CRC-32" in run("verify", path, "--quiet")[1]


@pytest.mark.slow
def test_several_files_of_a_new_format_are_read_as_one(tmp_path: Path, photo_folder: Path, toy: Format) -> None:
    for number in range(2):
        fastdata.convert(photo_folder, tmp_path / f"{number}.toy", resize=32, workers=1)
    with fastdata.open(f"{tmp_path}/*.toy") as reader:
        assert len(reader) == 24
    tar = samples.write(tmp_path, "tar")
    with pytest.raises(FormatError, match=r"data\.tar: not a toy but a tar file.*may name toys only"):
        fastdata.open([tmp_path / "0.toy", tar])
    (tmp_path / "cut.toy").write_bytes(b"")
    names = [tmp_path / name for name in ("cut.toy", "0.toy", "missing.toy", "1.toy")]
    with pytest.warns(UserWarning, match="2 shards are left out"):
        stream = fastdata.ImageStream(names, skip_shards=True)
    assert len(stream) == 24
    assert toy.suffixes == (".toy",)


@pytest.mark.usefixtures("toy")
def test_errors_name_what_a_new_format_offers(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.lmdb, \.h5, \.hdf5, \.tar, \.toy"):
        format_of("data")
    with pytest.raises(OptionError, match="format must be 'lmdb', 'hdf5', 'tar' or 'toy', not"):
        format_of("data", "zip")
    (tmp_path / "x.bin").write_bytes(b"something")
    with pytest.raises(FormatError, match="tar files, folders of images and toys"):
        fastdata.open(tmp_path / "x.bin")
    code, _, err = run("convert", tmp_path, tmp_path / "x.toy", "--shard-size", "1MB")
    assert code == 2
    assert "toy, which has no shards; for shards name a folder as DST, with --format tar" in err


def own_modules(entry: Format) -> set[Path]:
    """The modules that a format brings: its reader, its sink, and those that are named after one of them."""
    reader, sink = (name.partition(":")[0].rpartition(".")[2] for name in (entry.reader, entry.sink))
    found = {*(PACKAGE / "formats").glob(f"{reader}*.py")}
    if sink:
        found.add(PACKAGE / "converters" / "writers" / f"{sink}.py")
    return found


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Texts that are values: docstrings are sentences."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


@pytest.mark.slow
def test_nothing_asks_for_a_format_by_name() -> None:
    """Neither its name, nor its suffixes, nor the files that it owns; and its modules are imported by itself alone."""
    names = {text.strip("*") for entry in FORMATS.values() for text in (entry.name, *entry.suffixes, *entry.owned)}
    own = {path for entry in FORMATS.values() for path in own_modules(entry)}
    modules = {".".join(("fastdata", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in own}
    assert len(own) > 2 * len(FORMATS)
    found = []
    for path in sorted({*PACKAGE.rglob("*.py"), *(PACKAGE / "converters").rglob("*.py")} - own):
        if path == PACKAGE / "formats" / "__init__.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [f"{path}:{node.lineno}: {node.value!r}" for node in literals(tree) if node.value in names]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in modules:
                found.append(f"{path}:{node.lineno}: imports {node.module}")
    assert found == []


def test_the_table_is_there_before_anything_heavy() -> None:
    code = "import sys, fastdata.formats; print('numpy' in sys.modules, 'fastdata.formats.tar' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_the_default_shard_size_is_one_constant() -> None:
    text = f"{DEFAULT_SHARD_SIZE // 10**6}MB"
    assert f'default "{text}"' in (fastdata.convert.__doc__ or "")
    assert text in run("convert", "--help")[1]
