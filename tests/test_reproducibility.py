"""seed_worker and seed_everything in real DataLoaders: distinct within and across epochs and ranks, and repeatable."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fastdata.errors import OptionError
from fastdata.reproducibility import seed_everything, seed_worker

pytestmark = pytest.mark.slow

METHODS = [m for m in ("fork", "spawn", "forkserver") if m in torch.multiprocessing.get_all_start_methods()]
SAMPLES, WORKERS, EPOCHS = 16, 4, 3
Triple = tuple[float, float, float]
Epochs = list[list[Triple]]


class Draws(Dataset[Triple]):
    """Each sample is one number from each of the three global generators, as a user's transform draws them."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Triple:
        return random.random(), float(np.random.random()), float(torch.rand((), dtype=torch.float64))


def as_is(batch: list[Triple]) -> list[Triple]:
    return batch


def drawn(method: str, seed: int, *, workers: int = WORKERS, epochs: int = EPOCHS, persistent: bool = False) -> Epochs:
    seed_everything(seed)
    loader = DataLoader(
        Draws(),
        batch_size=2,
        num_workers=workers,
        worker_init_fn=seed_worker,
        multiprocessing_context=method,
        persistent_workers=persistent,
        collate_fn=as_is,
    )
    return [[triple for batch in loader for triple in batch] for _ in range(epochs)]


@pytest.fixture(autouse=True)
def settings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    benchmark = torch.backends.cudnn.benchmark
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = benchmark


def flat(epochs: Epochs) -> list[Triple]:
    return [triple for epoch in epochs for triple in epoch]


def assert_all_differ(epochs: Epochs, count: int) -> None:
    triples = flat(epochs)
    assert len(triples) == count
    # Stronger than asked: not only the triples, each generator's own numbers differ, too.
    for numbers in (triples, *zip(*triples, strict=True)):
        assert len(set(numbers)) == count


@pytest.mark.timeout(300)  # twelve workers that import torch afresh, where they start by spawn or forkserver
@pytest.mark.parametrize("method", METHODS)
def test_numbers_differ_and_repeat_whatever_the_start_method(method: str) -> None:
    epochs = drawn(method, 0)
    assert_all_differ(epochs, SAMPLES * EPOCHS)
    assert drawn(METHODS[0], 0) == epochs
    assert not set(flat(epochs)) & set(flat(drawn(METHODS[0], 1)))


def test_persistent_workers_continue() -> None:
    epochs = drawn(METHODS[0], 0, persistent=True)
    assert_all_differ(epochs, SAMPLES * EPOCHS)
    assert drawn(METHODS[0], 0, persistent=True) == epochs


@pytest.mark.parametrize("method", METHODS)
def test_ranks_differ(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # RANK is set late on purpose: a fork server that runs already does not see it.
    by_rank: Epochs = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        by_rank += drawn(method, 0, workers=2, epochs=1)
    assert_all_differ(by_rank, 2 * SAMPLES)


def test_many_ranks_differ_and_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rank: Epochs = []
    monkeypatch.setenv("WORLD_SIZE", "8")
    for rank in [*range(8), *range(8)]:
        monkeypatch.setenv("RANK", str(rank))
        by_rank.append([])
        for started_with in range(50):
            torch.manual_seed(started_with)
            seed_worker(0)
            by_rank[-1].append(numbers_now())
    assert by_rank[:8] == by_rank[8:]
    assert_all_differ(by_rank[:8], 8 * 50)


def test_the_pickle_holds_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    blob = pickle.dumps(seed_worker)
    torch.manual_seed(7)
    seed_worker(0)
    expected = numbers_now()
    monkeypatch.setenv("RANK", "0")
    torch.manual_seed(7)
    pickle.loads(pickle.dumps(pickle.loads(blob)))(0)
    assert numbers_now() == expected
    assert repr(seed_worker) == "fastdata.seed_worker"


def numbers_now() -> Triple:
    return random.random(), float(np.random.random()), float(torch.rand((), dtype=torch.float64))


@pytest.mark.parametrize("rank", [None, "0"])
@pytest.mark.parametrize("started_with", [0, 2**31, 2**32 + 7, 2**63 + 1])
def test_rank_0_is_exactly_the_recipe(rank: str | None, started_with: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
    torch.manual_seed(started_with)
    seed_worker(3)
    ours = numbers_now()
    torch.manual_seed(started_with)
    np.random.seed(started_with % 2**32)
    random.seed(started_with % 2**32)
    assert ours == numbers_now()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_a_plain_seed_is_used_unchanged(seed: int) -> None:
    seed_everything(seed)
    ours = numbers_now()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    assert ours == numbers_now()


def test_wide_and_negative_seeds_are_all_different() -> None:
    seeds = [0, 1, 2**32, 2**32 + 1, 2**64 - 1, 2**64, 2**64 + 1, 2**200, -1, -(2**64)]
    seen = []
    for seed in [*seeds, *seeds]:
        seed_everything(seed)
        seen.append(numbers_now())
    assert seen[: len(seeds)] == seen[len(seeds) :]
    for column in (0, 1):  # torch's CPU generator uses the lower 32 bits only
        assert len({numbers[column] for numbers in seen}) == len(seeds)


def test_bad_values(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"must be an integer, not 1\.5"):
        seed_everything(1.5)  # type: ignore[arg-type]
    monkeypatch.setenv("RANK", "-1")
    with pytest.raises(OptionError, match=r"RANK must be an integer of at least 0.* not '-1'"):
        seed_worker(0)


@pytest.mark.parametrize("configured", [None, ":16:8"])
def test_deterministic(configured: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", configured or "")
    if configured is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    torch.backends.cudnn.benchmark = True
    seed_everything(0)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.benchmark
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == configured
    seed_everything(0, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == (configured or ":4096:8")


def test_late_call_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="before the first use of CUDA"):
        seed_everything(0, deterministic=True)


def test_the_rank_of_a_process_group_counts(tmp_path: os.PathLike[str]) -> None:
    # In a process of its own: a process group leaves threads behind.
    script = (
        "import sys, torch, random\n"
        "from fastdata.reproducibility import seed_worker\n"
        "store = torch.distributed.HashStore()\n"
        "torch.distributed.init_process_group('gloo', store=store, rank=0, world_size=1)\n"
        "torch.distributed.get_rank, torch.distributed.get_world_size = (lambda: 1), (lambda: 2)\n"
        "torch.manual_seed(7); seed_worker(0)\n"
        "sys.exit(torch.initial_seed() == 7)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], cwd=os.getcwd(), timeout=120, check=False)
    assert finished.returncode == 0
