"""A record that comes more than once in an epoch: each time augmented anew, the same for any workers and ranks."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdata
from fastdata.codec.encode import encode
from tests import images, loader_targets
from tests.loader_targets import Fails

COUNT = 13
CROP = [fastdata.RandomResizedCrop(16), fastdata.RandomHorizontalFlip()]
WORKERS = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"}]
IDS = ["none", "processes", "threads"]
# The index and the hash of each image.
Seen = list[tuple[int, str]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("data"))


def written(folder: Path) -> str:
    place = folder / "d.lmdb"
    with fastdata.create(place) as writer:
        for i in range(COUNT):
            writer.write(fastdata.Record(f"r/{i}", {"jpg": encode(images.photo(70 + i, 60, seed=i), "jpg")}))
    return str(place)


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Plain images, red by their index."""
    place = tmp_path_factory.mktemp("red") / "d.tar"
    with fastdata.create(place) as writer:
        for i in range(COUNT):
            writer.write(fastdata.Record(f"r/{i}", {"png": encode(np.full((24, 24, 3), i, np.uint8), "png")}))
    return str(place)


def hashed(image: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(image.float().numpy()).tobytes()).hexdigest()


def batches_of(path: str, batch_size: int = 4, epochs: int = 1, **options: Any) -> list[Seen]:
    options = {"transform": CROP, "num_workers": 0, "fields": ("index", "image"), "seed": 5} | options
    with fastdata.DataLoader(path, batch_size, **options) as loader:
        return [
            list(zip(batch["index"].tolist(), map(hashed, batch["image"]), strict=True))
            for _ in range(epochs)
            for batch in loader
        ]


def flat(batches: list[Seen]) -> Seen:
    return [sample for batch in batches for sample in batch]


@pytest.fixture(scope="module")
def copies(path: str) -> dict[tuple[int, int], str]:
    return copies_in(path)


def copies_in(path: str) -> dict[tuple[int, int], str]:
    """(record, occurrence) -> its image, in epoch 0."""
    found: dict[tuple[int, int], str] = {}
    for number, (index, image) in enumerate(flat(batches_of(path, repeats=6))):
        found[index, number % 6] = image
    assert len(set(found.values())) == 6 * COUNT
    return found


def told(copies: dict[tuple[int, int], str], batches: list[Seen]) -> list[tuple[int, int]]:
    """The records and occurrences that batches are made of."""
    of = {(index, image): (index, occurrence) for (index, occurrence), image in copies.items()}
    return [of[sample] for sample in flat(batches)]


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("transform", [CROP, [*CROP, loader_targets.noisy], loader_targets.draws])
@pytest.mark.parametrize("chosen", [{"sampler": [5] * 16}, {"indices": [5] * 16}, {"indices": [5], "repeats": 16}])
def test_a_record_is_augmented_anew_each_time(
    path: str, workers: dict[str, Any], transform: Any, chosen: dict[str, Any]
) -> None:
    seen = flat(batches_of(path, 6, transform=transform, **chosen, **workers))
    assert len(set(seen)) == 16
    assert seen == flat(batches_of(path, 16, transform=transform, sampler=[5] * 16))
    assert seen[0] == flat(batches_of(path, 1, transform=transform, sampler=[5]))[0]


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS[1:], ids=IDS[1:])
@pytest.mark.parametrize("options", [{"repeats": 3, "shuffle": True}, {"indices": [3, 4, 3, 3, 9, 4], "shuffle": True}])
def test_neither_workers_nor_start_methods_change_copies(
    path: str, workers: dict[str, Any], options: dict[str, Any], start_method: str
) -> None:
    alone = batches_of(path, epochs=2, **options)
    assert batches_of(path, epochs=2, multiprocessing_context=start_method, **workers, **options) == alone


def test_copies_are_neighbours_and_the_first_is_as_without_them(path: str, copies: dict[tuple[int, int], str]) -> None:
    single = told(copies, batches_of(path, shuffle=True))
    assert [occurrence for _, occurrence in single] == [0] * COUNT
    several = told(copies, batches_of(path, shuffle=True, repeats=3))
    assert several == [(index, occurrence) for index, _ in single for occurrence in range(3)]
    assert len(fastdata.DataLoader(path, 4, repeats=3, num_workers=0)) == -(-3 * COUNT // 4)


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"pad": False}, {"even": "cut"}])
def test_copies_are_dealt_over_the_ranks(
    path: str, copies: dict[tuple[int, int], str], size: int, options: dict[str, Any]
) -> None:
    chosen: dict[str, Any] = {"repeats": 3, "shuffle": True, **options}
    whole = [told(copies, [batch]) for batch in batches_of(path, 6, **chosen)]
    ranks = [
        [told(copies, [batch]) for batch in batches_of(path, 6 // size, rank=rank, world_size=size, **chosen)]
        for rank in range(size)
    ]
    for number, batch in enumerate(whole):
        parts = [rank[number] for rank in ranks if number < len(rank)]
        dealt = [sample for row in itertools.zip_longest(*parts) for sample in row if sample is not None]
        if options.get("even") == "cut":
            assert dealt == batch[: len(dealt)]
            assert len(batch) - len(dealt) < size
        else:
            assert dealt[: len(batch)] == batch
        if number == len(whole) - 1 and not options:
            assert dealt[len(batch) :] == [(index, o + 3) for index, o in whole[0][: len(dealt) - len(batch)]]
        for part in parts[: size if size >= 3 else 0]:  # copies of a record go to different ranks
            assert len({index for index, _ in part}) == len(part)


def test_copies_in_indices_are_numbered_by_their_order_there(path: str, copies: dict[tuple[int, int], str]) -> None:
    indices = [3, 4, 3, 3, 9, 4]
    plain = told(copies, batches_of(path, indices=indices))
    assert plain == [(3, 0), (4, 0), (3, 1), (3, 2), (9, 0), (4, 1)]
    assert sorted(told(copies, batches_of(path, indices=indices, shuffle=True))) == sorted(plain)
    twice = told(copies, batches_of(path, indices=indices, shuffle=True, repeats=2))
    assert sorted(twice) == sorted((i, 2 * o + r) for i, o in plain for r in range(2))


def test_padding_is_the_next_occurrence(path: str, copies: dict[tuple[int, int], str]) -> None:
    def padded(size: int, **options: Any) -> Counter[tuple[int, int]]:
        found = [batches_of(path, 2, rank=rank, world_size=size, shuffle=True, **options) for rank in range(size)]
        return Counter(sample for rank in found for sample in told(copies, rank))

    assert padded(4) - Counter((i, 0) for i in range(COUNT)) == Counter(
        (i, 1) for i, _ in told(copies, batches_of(path, shuffle=True))[:3]
    )
    assert padded(5, indices=[3, 3]) == Counter((3, occurrence) for occurrence in range(5))
    for size in range(2, 9):
        taken = padded(size, indices=[3, 7, 3, 9, 7])
        for index, often in (Counter([index for index, _ in taken])).items():
            assert {o for i, o in taken if i == index} == set(range(often))


class Unsized:
    """A sampler that tells no length."""

    def __init__(self, given: Iterable[Any]) -> None:
        self.given = given

    def __iter__(self) -> Iterator[Any]:
        return iter(self.given)


@pytest.mark.parametrize("kind", [list, Unsized])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_sampler_is_counted_also_after_a_resume(
    path: str, copies: dict[tuple[int, int], str], kind: Any, stop: int
) -> None:
    given = [5, 1, 5, 5, 2, 1, 5, (7, 4), 7, 5, (5, 0), 5, 0]
    want = [(5, 0), (1, 0), (5, 1), (5, 2), (2, 0), (1, 1), (5, 3), (7, 4), (7, 0), (5, 4), (5, 0), (5, 5), (0, 0)]
    options: dict[str, Any] = {"transform": CROP, "num_workers": 0, "fields": ("index", "image"), "seed": 5}
    assert told(copies, batches_of(path, 3, sampler=kind(given))) == want
    first = fastdata.DataLoader(path, 3, sampler=kind(given), **options)
    batches = iter(first)
    for _ in range(stop):
        next(batches)
    again = fastdata.DataLoader(path, 3, sampler=kind(given), **options)
    again.load_state_dict(first.state_dict())
    rest = [list(zip(b["index"].tolist(), map(hashed, b["image"]), strict=True)) for b in again]
    assert told(copies, rest) == want[3 * stop :]


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("collating", [False, True])
def test_a_replacement_is_keyed_by_the_position_that_it_fills(
    red: str, workers: dict[str, Any], collating: bool
) -> None:
    """Not by the record's own place, where it is itself: nothing is augmented twice in the same way."""
    bad = {i for i in range(COUNT) if i % 3}
    options: dict[str, Any] = {"transform": [Fails(bad), loader_targets.draws], "on_error": "skip", **workers}
    if collating:
        options["collate_fn"] = lambda samples: {name: [s[name] for s in samples] for name in ("index", "image")}
    with fastdata.DataLoader(red, 4, fields=("index", "image"), shuffle=True, **options) as loader:
        seen = [
            (int(i), tuple(image.tolist())) for b in loader for i, image in zip(b["index"], b["image"], strict=True)
        ]
    assert not bad & {index for index, _ in seen}
    assert len(set(seen)) == COUNT
    alone = options | {"num_workers": 0, "collate_fn": None, "worker_mode": "process"}
    ranks = [
        [
            list(zip(b["index"].tolist(), map(tuple, b["image"].tolist()), strict=True))
            for b in fastdata.DataLoader(
                red, 2, fields=("index", "image"), shuffle=True, rank=rank, world_size=2, **alone
            )
        ]
        for rank in range(2)
    ]
    assert [sample for parts in zip(*ranks, strict=True) for part in parts for sample in part][:COUNT] == seen
