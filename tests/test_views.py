"""fastdata.DataLoader with views: several augmentations of one read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fastdata
from fastdata.codec.encode import encode
from tests import images, loader_targets
from tests.test_occurrences import COUNT, CROP, IDS, WORKERS, copies_in, hashed, written


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def copies(path: str) -> dict[tuple[int, int], str]:
    return copies_in(path)


def test_the_first_view_of_the_first_occurrence_is_the_only_one(path: str, copies: dict[tuple[int, int], str]) -> None:
    with fastdata.DataLoader(path, COUNT, views=3, transform=CROP, num_workers=0, seed=5, repeats=2) as loader:
        images, labels = next(iter(loader))
        assert isinstance(images, list)
        assert [tuple(view.shape) for view in images] == [(COUNT, 3, 16, 16)] * 3
        assert all(view.is_contiguous(memory_format=torch.channels_last) for view in images)
        assert labels.shape == (COUNT,)
        first = list(map(hashed, images[0]))
    assert first == [copies[number // 2, number % 2] for number in range(COUNT)]
    assert len({hashed(image) for view in images for image in view}) == 3 * COUNT
    assert not {hashed(image) for view in images[1:] for image in view} & set(copies.values())


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("transform", [CROP, [*CROP, loader_targets.noisy], loader_targets.zero_dimensions])
def test_views_are_the_same_for_any_workers(path: str, workers: dict[str, Any], transform: Any) -> None:
    def views(collating: bool, **options: Any) -> list[list[list[str]]]:
        if collating:
            options["collate_fn"] = lambda samples: ([list(v) for v in zip(*(s[0] for s in samples), strict=True)], 0)
        with fastdata.DataLoader(path, 5, views=2, transform=transform, shuffle=True, **options) as loader:
            return [[list(map(hashed, map(torch.as_tensor, view))) for view in images] for images, _ in loader]

    expected = views(False, num_workers=0)
    assert [len(view) for batch in expected for view in batch] == [5, 5, 5, 5, 3, 3]
    assert views(False, **workers) == expected
    assert views(True, **workers) == expected


def test_a_sample_with_views_fails_as_one(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "d.tar") as writer:
        for i in range(8):
            blob = encode(images.photo(64, 64, seed=i), "jpg")
            writer.write(fastdata.Record(f"r/{i}", {"jpg": blob[: len(blob) // 2] if i == 3 else blob}))
    for workers in (0, 1):
        with fastdata.DataLoader(
            str(tmp_path / "d.tar"), 8, views=2, transform=CROP, on_error="skip", num_workers=workers
        ) as loader:
            views, _ = next(iter(loader))
            assert [len(view) for view in views] == [8, 8]
            assert [key for key, _ in loader.skipped] == ["r/3"]
