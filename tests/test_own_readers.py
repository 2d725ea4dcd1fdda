"""Readers of the user's own: all that takes data takes them, and what they raise is told with data set and record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fastdata
from fastdata import DataLoader, ImageDataset, ImageStream, LoadError, Record
from fastdata.formats.base import Closing, Reader
from tests import images, samples

COUNT = 6
BROKEN = 2


class Own(Closing):
    """What the protocol asks for, around another reader; `error` is raised for one record."""

    def __init__(self, inner: Reader, error: Exception | None = None) -> None:
        self.inner, self.error = inner, error

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def options(self) -> Any:
        raise AttributeError("a reader needs none")

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Record:
        return self._told(index) or self.inner[index]

    def image(self, index: int) -> tuple[str, bytes | memoryview]:
        return self._told(index) or self.inner.image(index)

    def verify(self) -> Iterator[tuple[str, str]]:
        return self.inner.verify()

    def close(self) -> None:
        self.inner.close()

    def _told(self, index: int) -> Any:
        if index == BROKEN and self.error is not None:
            raise type(self.error)(*self.error.args)  # anew: what is kept would keep the memory of a cache


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[Reader]:
    records = [
        Record(f"k/{n}", {"png": images.png(images.photo(8, 8, seed=n)), "cls": b"%d" % n}) for n in range(COUNT)
    ]
    with fastdata.open(samples.write(tmp_path, "lmdb", records, classes=())) as reader:
        yield reader


def through(own: Any, **options: Any) -> list[int]:
    with DataLoader(own, 2, num_workers=options.pop("num_workers", 0), fields=("label", "image"), **options) as loader:
        return [label for batch in loader for label in batch["label"].tolist()]


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1}, {"cache": "ram"}, {"verify": False, "max_pixels": 64}, {"views": 2}, {"on_error": "skip"}],
)
def test_a_loader_reads_through_a_reader_of_the_users_own(inner: Reader, options: dict[str, Any]) -> None:
    assert through(Own(inner), **options) == [*range(COUNT)]
    assert through(Own(inner), repeats=2, **options) == sorted([*range(COUNT)] * 2)


def test_so_do_data_sets_and_the_limit_of_pixels_holds(inner: Reader) -> None:
    for options in ({}, {"verify": False}, {"max_pixels": 64}):
        own: Any = Own(inner)
        assert [label for _, label in ImageStream(own, on_error="skip", **options)] == [*range(COUNT)]
        data = ImageDataset(own, cache="ram", **options)
        assert [data[number][1] for number in range(COUNT)] == [*range(COUNT)]
        data.reader.close()
    for way in (through, lambda own, **limit: ImageDataset(own, **limit)[0]):
        with pytest.raises(fastdata.TooLargeError, match="record 'k/0'"):
            way(Own(inner), max_pixels=63)


WAYS: list[Callable[[Any], Any]] = [
    through,
    lambda own: through(own, cache="ram"),
    lambda own: list(DataLoader(own, 2, num_workers=0, fields=("png",))),
    lambda own: ImageDataset(own)[BROKEN],
    lambda own: list(ImageDataset(own)),
    lambda own: list(ImageStream(own)),
]


@pytest.mark.parametrize("error", [StopIteration(), IndexError("oh"), ValueError("oh")], ids=repr)
def test_what_it_raises_names_data_set_and_record_and_ends_no_loop(inner: Reader, error: Exception) -> None:
    for way in WAYS:
        with pytest.raises(LoadError, match=rf"record 'k/{BROKEN}': .*{type(error).__name__}") as told:
            way(Own(inner, error))
        assert inner.path in str(told.value)
    with pytest.raises(IndexError):
        ImageDataset(Own(inner))[COUNT]  # type: ignore[arg-type]


def test_what_it_raises_for_a_record_is_skipped_where_that_is_wanted(inner: Reader) -> None:
    own: Any = Own(inner, ValueError("oh"))
    stream = ImageStream(own, on_error="skip")
    assert len(list(stream)) == COUNT
    loader = DataLoader(own, 2, num_workers=0, on_error="skip")
    assert sum(len(labels) for _, labels in loader) == COUNT
    for skipped in (stream.skipped, loader.skipped):
        assert set(skipped) == {(f"k/{BROKEN}", "ValueError: oh")}  # what stands in may be that record again
