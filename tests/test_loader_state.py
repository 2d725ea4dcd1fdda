"""A state of fastdata.DataLoader: a run that is taken up again gives the batches that an unbroken one would."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fastdata
from tests.test_loader import AUGMENT, digest, epochs, written


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def unbroken(data: dict[str, str]) -> list[str]:
    return [batch for epoch in epochs(data["lmdb"]) for batch in epoch]


@pytest.mark.parametrize("stop_after", [0, 1, 4, 6])
def test_a_resumed_run_goes_on_where_it_stood(data: dict[str, str], unbroken: list[str], stop_after: int) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 7, "transform": AUGMENT}
    with fastdata.DataLoader(data["lmdb"], 8, num_workers=2, **options) as loader:
        batches = iter(loader)
        for _ in range(stop_after):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
    with fastdata.DataLoader(data["hdf5"], 8, num_workers=1, **options) as resumed:
        resumed.load_state_dict(state)
        rest = [digest(batch) for batch in resumed]
        following = [digest(batch) for batch in resumed]
    assert (rest + following)[: 12 - stop_after] == unbroken[stop_after:]


def test_a_run_resumes_with_another_number_of_ranks(data: dict[str, str]) -> None:
    def loaders(size: int) -> list[fastdata.DataLoader]:
        return [
            fastdata.DataLoader(
                data["lmdb"], 8 // size, shuffle=True, transform=AUGMENT, num_workers=0, rank=r, world_size=size,
                fields=("index",), drop_last=True,
            )
            for r in range(size)
        ]  # fmt: skip

    one = iter(loaders(1)[0])
    whole = [sorted(batch["index"].tolist()) for batch in one]
    two = loaders(2)
    for iterator in [iter(loader) for loader in two]:
        next(iterator)
    resumed = loaders(4)
    for loader in resumed:
        loader.load_state_dict(two[0].state_dict())
    parts = zip(*resumed, strict=True)
    assert [sorted(i for part in batch for i in part["index"].tolist()) for batch in parts] == whole[1:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed"),
        ({"shuffle": True}, "shuffle"),
        ({"indices": "x"}, "indices"),
        ({"fingerprint": "x"}, "fingerprint"),
        ({"consumed": 3}, "global batch"),
        (None, "state"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(data: dict[str, str], change: dict[str, Any] | None, words: str) -> None:
    loader = fastdata.DataLoader(data["lmdb"], 8, num_workers=0)
    state: Any = None if change is None else loader.state_dict() | change
    with pytest.raises(fastdata.OptionError, match=words):
        loader.load_state_dict(state)


def test_a_state_knows_which_samples_were_chosen_and_that_a_sampler_chose_them(data: dict[str, str]) -> None:
    def made(**options: Any) -> fastdata.DataLoader:
        return fastdata.DataLoader(data["lmdb"], 4, num_workers=0, **options)

    state = json.loads(json.dumps(made(indices=[0, 1, 2, 3, 4]).state_dict()))
    made(indices=[0, 1, 2, 3, 4]).load_state_dict(state)
    with pytest.raises(fastdata.OptionError, match="indices"):
        made(indices=[4, 3, 2, 1, 0]).load_state_dict(state)
    count = len(made().reader)
    with pytest.raises(fastdata.OptionError, match="sampler"):
        made().load_state_dict(made(sampler=list(range(count))[::-1]).state_dict())
    assert (made().state_dict()["sampler"], made(sampler=[1]).state_dict()["sampler"]) == (False, True)


def test_a_sampler_without_a_length_is_told_when_a_length_is_needed(data: dict[str, str]) -> None:
    loader = fastdata.DataLoader(data["lmdb"], 4, num_workers=0, sampler=(i for i in range(5)))
    with pytest.raises(TypeError, match="give it a __len__"):
        len(loader)


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "persistent_workers", "pin_memory", "exact"])
def test_flags_are_flags(data: dict[str, str], name: str) -> None:
    options: dict[str, Any] = {name: "no"}
    with pytest.raises(fastdata.OptionError, match=f"{name} must be True or False, not 'no'"):
        fastdata.DataLoader(data["lmdb"], 4, num_workers=0, **options)
    if name != "pin_memory":  # which warns where there is no device
        options = {name: np.True_}
        json.dumps(fastdata.DataLoader(data["lmdb"], 4, num_workers=0, **options).state_dict())
