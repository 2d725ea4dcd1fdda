"""World: ranks from arguments, torch.distributed or the environment; workers from torch."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fastdata
from fastdata.converters import convert
from fastdata.cpus import default_workers
from fastdata.errors import OptionError
from fastdata.world import World

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_alone_by_default() -> None:
    assert World.current() == World(0, 1, 0, 1)


def test_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert World.current(3, 4) == World(3, 4)
    assert World.current() == World(0, 2)


def test_an_initialised_process_group_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 5, get_world_size=lambda: 8
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)  # type: ignore[arg-type]
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert World.current() == World(5, 8)
    group.is_initialized = lambda: False
    assert World.current() == World(0, 2)


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch, photo_folder: Path) -> None:
    monkeypatch.setattr("fastdata.cpus.available_cpus", lambda: 8)
    for ranks, workers in ((None, 8), ("0", 8), ("2", 4), ("3", 2), ("16", 1)):
        if ranks is not None:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert default_workers() == workers
        with fastdata.DataLoader(photo_folder, 4, num_workers=None) as loader:
            assert loader.num_workers == workers
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "all")
    with pytest.raises(OptionError, match=r"LOCAL_WORLD_SIZE must be an integer of at least 0.* not 'all'"):
        default_workers()


def test_no_other_module_reads_launchers_or_torch() -> None:
    """So that an incomplete environment is handled in one place."""
    readers = []
    for path in [*Path(fastdata.__file__).parent.rglob("*.py"), *Path(convert.__file__).parent.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "value", None) if isinstance(node, ast.Constant) else getattr(node, "attr", None)
            if name in (*VARIABLES, "get_worker_info"):
                readers.append(path.name)
    assert set(readers) == {"world.py"}


def test_torch_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.delitem(sys.modules, "torch.utils.data", raising=False)
    assert World.current() == World()
    assert "torch.distributed" not in sys.modules


@pytest.mark.parametrize(
    ("rank", "size", "message"),
    [
        ("1", None, "RANK=1 without WORLD_SIZE: .* give rank= and world_size="),
        ("0", None, "RANK=0 without WORLD_SIZE"),
        (None, "2", "WORLD_SIZE=2 without RANK.* give rank= and world_size="),
        ("one", "2", "the environment variable RANK must be an integer of at least 0.* not 'one'"),
        ("", "", "the environment variable RANK must be an integer"),
        ("2", "2", "rank must be an integer from 0 to 1, not 2"),
    ],
)
def test_an_incomplete_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, size: str | None, message: str
) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=message):
        World.current()
    if size != "2" or rank is not None:  # the number of ranks is known there, and this rank is asked for later
        for ask in (World.expected, lambda: fastdata.seed_worker(0)):
            with pytest.raises(OptionError, match=message):
                ask()


@pytest.mark.parametrize(
    ("rank", "size", "message"),
    [
        (0, None, "together"),
        (None, 2, "together"),
        (2, 2, "rank must be an integer from 0 to 1, not 2"),
        (-1, 2, "rank must be"),
        (0, 0, "world_size must be an integer of at least 1, not 0"),
        ("0", 2, "rank must be an integer"),
        (True, 2, "rank must be an integer"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(rank: Any, size: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        World.current(rank, size)


def test_workers_must_fit() -> None:
    with pytest.raises(OptionError, match="worker must be"):
        World(0, 1, 3, 3)


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, 1),
        ({"LOCAL_RANK": "1"}, 1),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, 5),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, 4),
        ({"LOCAL_RANK": "1", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "4", "RANK": "2"}, 2),
    ],
)
def test_a_launcher_gives_the_rank_by_node_and_local_rank(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int
) -> None:
    for name, value in {"WORLD_SIZE": "8", **variables}.items():
        monkeypatch.setenv(name, value)
    assert World.current() == World.expected() == World(rank, 8)


@pytest.mark.parametrize("variables", [{}, {"NODE_RANK": "0"}, {"LOCAL_RANK": "1", "NODE_RANK": "1"}])
def test_a_rank_that_is_not_known_yet_is_asked_for_only_where_an_epoch_begins(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], photo_folder: Path
) -> None:
    for name, value in {"WORLD_SIZE": "2", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=r"WORLD_SIZE=2 without RANK.*initialise torch\.distributed first"):
        World.current()
    assert World.expected() == World(0, 2)
    stream = fastdata.ImageStream(photo_folder, batch_size=2)
    with fastdata.DataLoader(photo_folder, 2, transform=fastdata.CenterCrop(8), num_workers=0) as loader:
        assert len(loader) == len(stream) == 3
        for batches in (loader, stream):
            with pytest.raises(OptionError, match="without RANK"):
                iter(batches)
        monkeypatch.setenv("RANK", "1")
        assert [labels.tolist() for _, labels in loader] == [[0, 0], [1, 1], [2, 2]]


def test_a_variable_that_is_not_a_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "x")
    for found in (World.current, World.expected):
        with pytest.raises(OptionError, match=r"LOCAL_RANK must be an integer .* not 'x'"):
            found()


def test_one_process_of_a_launcher_is_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert World.current() == World(0, 1)
