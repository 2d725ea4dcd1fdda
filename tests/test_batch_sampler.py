"""batch_sampler of fastdata.DataLoader: batches of any sizes, as a user's sampler gives them; and single samples."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

import fastdata
from tests.loader_targets import Fails, crop_by_red
from tests.test_loader_faults import COUNT
from tests.test_loader_faults import path as path

# Small batches before large ones, so that whatever holds a batch must grow.
BATCHES = [[3], [0, 1, 2, 3], [7, 7], list(range(COUNT)), [5, 3, 3]]
MODES: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2, "worker_mode": "thread"},
    *({"num_workers": 2, "multiprocessing_context": name} for name in multiprocessing.get_all_start_methods()),
]
NAMES = ["none", "threads", *multiprocessing.get_all_start_methods()]


class Sampler:
    """Gives what a function gives; notes the epochs that it is told, and has a length where it is given one."""

    def __init__(self, items: Callable[[int], Iterable[Any]]) -> None:
        self.items, self.epochs, self.drawn = items, list[int](), 0

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[Any]:
        for item in self.items(self.epochs[-1]):
            self.drawn += 1
            yield item


class Sized(Sampler):
    def __len__(self) -> int:
        return len(list(self.items(0)))


def loader(data: str, batch_sampler: Any, **options: Any) -> fastdata.DataLoader:
    options = {"num_workers": 0, "fields": ("index",)} | options
    return fastdata.DataLoader(data, batch_sampler=batch_sampler, **options)


def taken(batches: Iterable[Any], most: int | None = None) -> list[list[int]]:
    return [batch["index"].tolist() for batch in itertools.islice(batches, most)]


@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_batches_of_any_size_come_as_they_are_given(path: str, mode: dict[str, Any]) -> None:
    """Also while all of them are kept, and in every epoch."""
    with loader(path, BATCHES, fields=("index", "image", "label"), **mode) as batches:
        assert (batches.batch_size, len(batches), batches.drop_last) == (None, len(BATCHES), False)
        kept = [batch for _ in range(2) for batch in batches]
        assert taken(kept) == BATCHES * 2
        for batch in kept:
            assert batch["image"].shape == (len(batch["index"]), 3, 16, 16)
            assert batch["image"][:, 0, 0, 0].tolist() == batch["label"].tolist() == batch["index"].tolist()


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
def test_the_same_for_torch_and_behind_a_prefetcher(path: str, mode: dict[str, Any]) -> None:
    sampler = BatchSampler(SequentialSampler(range(COUNT)), 5, drop_last=False)
    theirs = torch.utils.data.DataLoader(fastdata.ImageDataset(path, form="tensor"), batch_sampler=sampler)
    with fastdata.DataLoader(path, batch_sampler=sampler, **mode) as ours:
        for batches in (ours, fastdata.CUDAPrefetcher(ours, device="cpu")):
            found = [(images.clone(), labels.clone()) for images, labels in batches]
            assert len(found) == len(batches) == len(theirs) == 5
            for (images, labels), (their_images, their_labels) in zip(found, theirs, strict=True):
                assert torch.equal(images, their_images)
                assert torch.equal(labels, their_labels)
        assert ours.batch_sampler is sampler
        assert ours.sampler is sampler.sampler


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
@pytest.mark.parametrize("views", [1, 2])
def test_augmentation_counts_occurrences_as_with_a_sampler(path: str, mode: dict[str, Any], views: int) -> None:
    """Also where the batch sampler names them itself."""
    options: dict[str, Any] = {"transform": fastdata.RandomResizedCrop(8), "fields": ("image",), "views": views}
    flat = list(itertools.chain(*BATCHES))

    def images(batches: Iterable[Any]) -> torch.Tensor:
        made = [batch["image"] if views > 1 else [batch["image"]] for batch in batches]
        return torch.cat([torch.stack(views, 1) for views in made])

    with fastdata.DataLoader(path, len(flat), sampler=flat, num_workers=0, **options) as plain:
        want = images(plain)
    named = [[(index, flat[: k + i].count(index)) for i, index in enumerate(batch)] for k, batch in starts(BATCHES)]
    for given in (BATCHES, named):
        with loader(path, given, **options | mode) as batches:
            assert torch.equal(images(batches), want)


def starts(batches: Sequence[list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Each batch with the number of samples before it."""
    return zip(itertools.accumulate(map(len, batches), initial=0), batches, strict=False)


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
def test_a_resumed_run_goes_on_with_the_next_batch(path: str, mode: dict[str, Any]) -> None:
    sampler = Sampler(lambda epoch: [[epoch, *batch] for batch in BATCHES])
    options: dict[str, Any] = {"transform": fastdata.RandomResizedCrop(8), "fields": ("index", "image")} | mode
    with loader(path, sampler, **options) as batches:
        first = list(batches)
        second = iter(batches)
        head = list(itertools.islice(second, 3))
        state = json.loads(json.dumps(batches.state_dict()))
        tail = list(second)
    assert (state["epoch"], state["consumed"]) == (1, 3)
    assert taken(first) == [[0, *batch] for batch in BATCHES]
    assert taken([*head, *tail]) == [[1, *batch] for batch in BATCHES]
    assert sampler.epochs == [0, 1]
    with loader(path, sampler, **options | {"num_workers": 0, "worker_mode": "process"}) as again:
        again.load_state_dict(state)
        following = list(again)
        assert taken(following) == taken(tail)
        assert all(torch.equal(a["image"], b["image"]) for a, b in zip(following, tail, strict=True))
        assert next(iter(again))["index"].tolist() == [2, 3]


def test_states_of_other_orders_are_refused(path: str) -> None:
    state = loader(path, BATCHES).state_dict()
    for other in (
        loader(path, BATCHES[1:]),
        fastdata.DataLoader(path, 1),
        fastdata.DataLoader(path, 1, sampler=[0] * 5),
    ):
        with pytest.raises(fastdata.OptionError, match="the state has s"):
            other.load_state_dict(state)
        with pytest.raises(fastdata.OptionError, match="the state has s"):
            loader(path, BATCHES).load_state_dict(other.state_dict())


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
def test_samples_that_fail_are_replaced_from_what_was_drawn(path: str, mode: dict[str, Any]) -> None:
    given = [[3, 4], [5, 6, 7, 3], [4]]
    options: dict[str, Any] = {"on_error": "skip", "transform": Fails({4, 6}), "fields": ("index", "image")}
    found = []
    for each in ({"num_workers": 0}, mode):
        with loader(path, given, **options | each) as batches:
            found.append(taken(batches))
            assert [key for key, _ in batches.skipped] == ["r/4", "r/6", "r/4"]
    assert found[0] == found[1]
    assert [len(batch) for batch in found[0]] == [2, 4, 1]
    assert set(itertools.chain(*found[0])) <= {3, 5, 7}


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
def test_collate_fn_gets_the_samples_of_each_batch(path: str, mode: dict[str, Any]) -> None:
    options: dict[str, Any] = {"transform": crop_by_red, "collate_fn": list, "fields": None}
    with loader(path, BATCHES, **options | mode) as batches:
        found = list(batches)
    assert [[label for _, label in batch] for batch in found] == BATCHES
    assert {tuple(image.shape) for image, _ in found[3]} == {(3, 8, 16), (3, 9, 16), (3, 10, 16)}


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
@pytest.mark.parametrize("timeout", [0, 60])
def test_an_endless_one_is_drawn_as_it_is_needed(path: str, mode: dict[str, Any], timeout: float) -> None:
    sampler = Sampler(lambda _: itertools.cycle(BATCHES))
    with loader(path, sampler, timeout=timeout, fields=("index", "image"), **mode) as batches:
        iterator = iter(batches)
        assert sampler.drawn == 0
        assert taken(iterator, 12) == list(itertools.islice(itertools.cycle(BATCHES), 12))
        assert sampler.drawn <= 12 + 4 + 1
        with pytest.raises(TypeError, match="that of its batch_sampler, which has none: give it a __len__"):
            len(batches)
        iterator.close()


def test_what_has_a_length_is_drawn_when_the_epoch_begins(path: str) -> None:
    sampler = Sized(lambda _: BATCHES)
    batches = loader(path, sampler)
    iterator = iter(batches)
    assert sampler.drawn == len(batches) == len(BATCHES)
    assert taken(iterator) == BATCHES


def test_each_rank_gives_its_own(path: str) -> None:
    def made(rank: int) -> fastdata.DataLoader:
        ranks = DistributedSampler(range(COUNT), 2, rank, shuffle=False)  # type: ignore[arg-type]
        return loader(path, BatchSampler(ranks, 5, drop_last=True), rank=rank, world_size=2)

    assert [taken(made(rank)) for rank in range(2)] == [
        [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]],
        [[1, 3, 5, 7, 9], [11, 13, 15, 17, 19]],
    ]


@pytest.mark.parametrize(
    "batch", [torch.tensor([3, 4]), np.array([3, 4]), (3, 4), [np.int32(3), torch.tensor(4)], range(3, 5), iter([3, 4])]
)
def test_other_sequences_of_indices_are_batches(path: str, batch: Any) -> None:
    assert taken(loader(path, iter([batch]))) == [[3, 4]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([[1], []], r"batch_sampler gave \[\]: it must give lists of at least one index"),
        ([[1], 3], "batch_sampler gave 3: it must give lists"),
        ([[1], "23"], "batch_sampler gave '23': it must give lists"),
        (
            [[1], ["x"]],
            r"batch_sampler gave 'x': it must give indices, or \(index, occurrence\) tuples .* in its lists",
        ),
        ([[1], [(1, -1)]], r"batch_sampler gave \(1, -1\): it must give"),
        ([[1], [COUNT]], "batch_sampler gave indices 24 to 24; they must be integers from 0 to 23"),
    ],
)
def test_what_is_no_batch_is_named_in_its_place(path: str, given: list[Any], words: str) -> None:
    iterator = iter(loader(path, iter(given)))
    assert next(iterator)["index"].tolist() == [1]
    with pytest.raises(fastdata.OptionError, match=words):
        next(iterator)


@pytest.mark.parametrize("given", [[], iter(())])
def test_one_that_gives_nothing_is_an_error(path: str, given: Any) -> None:
    with pytest.raises(fastdata.OptionError, match=r"there are no samples|gave no batches"):
        next(iter(loader(path, given)))


def test_one_that_is_stuck_counts_against_the_timeout(path: str) -> None:
    freed = threading.Event()

    def items(_: int) -> Iterator[list[int]]:
        yield [1]
        freed.wait()

    with loader(path, Sampler(items), timeout=0.2) as batches:
        with pytest.raises(fastdata.WorkerError, match=r"batch_sampler gave no batch within timeout=0\.2 seconds"):
            list(batches)
        freed.set()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 2}, "batch_sampler already determines the batches: leave out batch_size, shuffle, sampler and"),
        ({"sampler": [1]}, "leave out batch_size"),
        ({"drop_last": True}, "leave out batch_size"),
        ({"shuffle": True}, "batch_sampler already determines order and samples: leave out shuffle"),
        ({"indices": [1]}, "leave out shuffle and indices"),
        ({"repeats": 2}, "leave out repeats"),
        ({"pad": False}, "leave out pad and even"),
        ({"batch_sampler": 5}, "batch_sampler must be an iterable of lists of indices, not 5"),
    ],
)
def test_what_excludes_it_is_refused(path: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(fastdata.OptionError, match=words):
        fastdata.DataLoader(path, **{"batch_sampler": [[1]], "num_workers": 0} | options)


def test_torchs_defaults_beside_it_are_taken(path: str) -> None:
    options: dict[str, Any] = {"batch_size": None, "shuffle": None, "sampler": None, "drop_last": False}
    assert taken(loader(path, BATCHES, **options)) == BATCHES


@pytest.mark.parametrize("mode", MODES[:3], ids=NAMES[:3])
def test_without_a_batch_size_single_samples_come(path: str, mode: dict[str, Any]) -> None:
    """As from torch's DataLoader: an image and an int, or a dict; the state counts them."""
    with fastdata.DataLoader(path, batch_size=None, shuffle=True, **mode) as samples:
        assert (samples.batch_size, samples.batch_sampler, len(samples)) == (None, None, COUNT)
        iterator = iter(samples)
        image, label = next(iterator)
        state = samples.state_dict()
        assert (image.shape, image.dtype, type(label), image[0, 0, 0].item()) == ((3, 16, 16), torch.uint8, int, label)
        rest = [label for _, label in iterator]
        assert sorted([label, *rest]) == list(range(COUNT))
        samples.load_state_dict(state)
        assert [label for _, label in samples] == rest
    names = ("key", "index", "image", "cls")
    with fastdata.DataLoader(path, None, fields=names, sampler=[5, 6], views=2, **mode) as samples:
        found = list(samples)
    assert [(one["key"], one["index"], one["cls"]) for one in found] == [("r/5", 5, b"5"), ("r/6", 6, b"6")]
    assert [[view.shape for view in one["image"]] for one in found] == [[(3, 16, 16)] * 2] * 2
    with fastdata.DataLoader(path, None, collate_fn=lambda sample: sample, sampler=[5], **mode) as samples:
        assert [label for _, label in samples] == [5]


def test_there_is_no_last_batch_of_single_samples(path: str) -> None:
    with pytest.raises(fastdata.OptionError, match="drop_last=True needs a batch_size"):
        fastdata.DataLoader(path, None, drop_last=True)


def test_without_a_batch_sampler_there_is_torchs(path: str) -> None:
    for options in ({}, {"drop_last": True}, {"sampler": [1, 2, 3, 4, 5]}, {"rank": 1, "world_size": 2}):
        with fastdata.DataLoader(path, 4, num_workers=0, fields=("index",), **options) as batches:  # type: ignore[arg-type]
            found = batches.batch_sampler
            assert isinstance(found, BatchSampler)
            assert (found.batch_size, found.drop_last, len(found)) == (4, batches.drop_last, len(batches))
            assert list(found) == taken(batches)
