"""How an epoch of fastdata.DataLoader ends: ranks filled up, cut down, or uneven; and what excludes each other."""

from __future__ import annotations

from typing import Any

import pytest

import fastdata
from tests.test_occurrences import COUNT, written


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repeats": 0}, "repeats must be an integer from 1 to 1048576, not 0"),
        ({"views": 1.5}, "views must be an integer"),
        ({"repeats": 1 << 62}, "repeats must be an integer from 1 to 1048576"),
        ({"views": 1 << 62}, "views must be an integer from 1 to 1048576"),
        ({"sampler": [1], "repeats": 2}, "leave out repeats"),
        ({"sampler": [1], "pad": False}, "leave out pad and even"),
        ({"sampler": [1], "even": "cut"}, "leave out pad and even"),
        ({"pad": False, "even": "cut"}, "leave out one of the two"),
        ({"pad": False, "drop_last": True}, "leave out one of the two"),
        ({"pad": 1}, "pad must be True or False"),
        ({"even": "no"}, "even must be 'pad' or 'cut', not 'no'"),
    ],
)
def test_what_excludes_each_other_is_refused(path: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(fastdata.OptionError, match=words):
        fastdata.DataLoader(path, 4, num_workers=0, **options)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("batch_size", [2, 5, 20])
def test_without_padding_every_sample_comes_once(path: str, size: int, batch_size: int) -> None:
    loaders = [
        fastdata.DataLoader(
            path, batch_size, pad=False, rank=r, world_size=size, num_workers=0, fields=("index",), shuffle=True
        )
        for r in range(size)
    ]
    taken = [[batch["index"].tolist() for batch in loader] for loader in loaders]
    assert [len(loader) for loader in loaders] == [len(batches) for batches in taken]
    assert sorted(index for batches in taken for batch in batches for index in batch) == list(range(COUNT))
    counts = [sum(map(len, batches)) for batches in taken]
    assert max(counts) - min(counts) <= 1


def test_cutting_leaves_out_what_does_not_divide(path: str) -> None:
    loaders = [
        fastdata.DataLoader(path, 2, even="cut", rank=r, world_size=5, num_workers=0, fields=("index",))
        for r in range(5)
    ]
    assert [[batch["index"].tolist() for batch in loader] for loader in loaders] == [
        [[2 * r, 2 * r + 1]] for r in range(5)
    ]
    with pytest.raises(fastdata.OptionError, match='even="cut"; use fewer ranks, pad=False instead of'):
        fastdata.DataLoader(path, 2, indices=[1], even="cut", rank=0, world_size=5)
