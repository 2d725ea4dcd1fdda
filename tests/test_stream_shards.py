"""ImageStream over shards of which some are missing or damaged: an error, or a named loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastdata import FormatError, ImageStream, OptionError
from tests.test_stream import flat, load, numbered, shards

__all__ = ["shards"]


def damage(path: str, kind: str) -> None:
    if kind == "missing":
        Path(path).unlink()
    elif kind == "cut":
        Path(path).write_bytes(Path(path).read_bytes()[:700])
    elif kind == "zeros":
        Path(path).write_bytes(bytes(1024) + Path(path).read_bytes()[1024:])
    else:
        Path(path).write_bytes(b"")


@pytest.mark.parametrize("kind", ["missing", "cut", "empty"])
def test_shards_of_others_that_are_lost_are_named(shards: list[str], kind: str) -> None:
    damage(shards[1], kind)
    with pytest.raises((FormatError, FileNotFoundError), match="foreign-1"):
        ImageStream(shards)
    for source in (shards, shards[0].replace("-0", "-{0..2}")):
        with pytest.warns(UserWarning, match=r"1 shards are left out.*foreign-1\.tar: "):
            stream = ImageStream(source, skip_shards=True)
        assert [path for path, _ in stream.skipped_shards] == [shards[1]]
        assert flat(stream) == [*range(10), 20, 21, 22]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["missing", "cut", "empty"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_shards_of_ours_that_are_lost_are_named(tmp_path: Path, kind: str, method: str) -> None:
    ours = numbered(tmp_path / "ours", 120, format="tar", shard_size=50_000)
    names = sorted(str(name) for name in ours.glob("*.tar"))
    whole = len(ImageStream(names))
    lost = len(ImageStream(names[1:2]))
    damage(names[1], kind)
    sources: list[Any] = [ours, names]
    for source in sources if method == "fork" else sources[:1]:
        with pytest.warns(UserWarning, match="1 shards are left out"):
            stream = ImageStream(source, skip_shards=True)
        assert [path for path, _ in stream.skipped_shards] == [names[1]]
        assert len(stream) == whole - lost
        assert len(set(flat(load(stream, 2, multiprocessing_context=method)))) == whole - lost


def test_what_is_whole_is_not_warned_of(shards: list[str]) -> None:
    stream = ImageStream(shards, skip_shards=True)
    assert (flat(stream), stream.skipped_shards) == (list(range(23)), [])


def test_nothing_left_is_an_error(tmp_path: Path, shards: list[str]) -> None:
    for path in shards:
        damage(path, "missing")
    with pytest.raises(FormatError, match=r"none of 3 shards can be read; the first one, .*foreign-0\.tar"):
        ImageStream(shards, skip_shards=True)
    with pytest.raises(FormatError, match="skip_shards is for tar files"):
        ImageStream(numbered(tmp_path / "set.lmdb"), skip_shards=True)
    with pytest.raises(OptionError, match="too late for a reader"):
        ImageStream(ImageStream(numbered(tmp_path / "set.h5")).reader, skip_shards=True)
