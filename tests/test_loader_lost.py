"""What is told of samples whose worker is lost, of main modules that workers cannot import, and of shared iterators."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import fastdata
from tests import samples
from tests.loader_targets import Fails, Slow, ends_its_thread

pytestmark = pytest.mark.slow

COUNT = 24
WORKERS = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"}]
IDS = ["none", "processes", "threads"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Plain images, red by their index, which is their label, too."""
    return samples.plain_images(tmp_path_factory.mktemp("lost") / "d.lmdb")


def loader(data: Any, **options: Any) -> fastdata.DataLoader:
    return fastdata.DataLoader(data, **({"batch_size": 4} | options))


@pytest.mark.parametrize("collate_fn", [None, list])
def test_a_death_names_the_samples_that_the_worker_had(path: str, collate_fn: Any) -> None:
    """At once also of the first sample, and some of a large part."""
    options = {"num_workers": 1, "collate_fn": collate_fn}
    with loader(path, transform=Fails({13}, "kill"), **options) as batches:
        words = r"d\.lmdb: loader worker .* signal 9 \(SIGKILL\) with 4 samples under way \('r/12', 'r/13', .*memory"
        with pytest.raises(fastdata.WorkerError, match=words):
            list(batches)
    whole = loader(path, batch_size=COUNT, transform=Fails({13}, "kill"), **options)
    with whole, pytest.raises(fastdata.WorkerError, match=r"24 samples under way .*'r/7' and 16 more\)"):
        list(whole)


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_timeout_names_the_samples_that_are_waited_for(path: str, mode: Any) -> None:
    freed = threading.Event()

    def waits(image: Any) -> Any:
        if image[0, 0, 0] == 9:
            freed.wait()
        return image

    options = {"worker_mode": mode, "num_workers": 1, "timeout": 0.5, "multiprocessing_context": "fork"}
    batches = loader(path, transform=waits, **options)
    with batches, pytest.raises(fastdata.WorkerError, match=r"timeout=0\.5 .*\('r/8', 'r/9', 'r/10', 'r/11'\)"):
        list(batches)
    freed.set()


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_transform_that_would_end_its_worker_is_told_of_its_sample(path: str, mode: Any, on_error: Any) -> None:
    batches = loader(path, transform=ends_its_thread, num_workers=1, worker_mode=mode, on_error=on_error)
    with batches, pytest.raises(fastdata.WorkerError, match=r"r/0.*SystemExit\(3\)"):
        next(iter(batches))
    assert batches.skipped == []


INVERT = """
import sys, fastdata
def invert(image): return 255 - image
options = {"num_workers": 1, "transform": invert, "multiprocessing_context": sys.argv[2]}
next(iter(fastdata.DataLoader(sys.argv[1], 4, **options)))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("way", ["-c", "-", "-m"])
def test_a_main_module_without_a_file_is_refused_in_words(path: str, method: str, way: str, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(INVERT)
    arguments = {"-c": ["-c", INVERT], "-": ["-"], "-m": ["-m", "package"]}[way]
    done = subprocess.run(
        [sys.executable, *arguments, path, method], input=INVERT, capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": f"{os.getcwd()}{os.pathsep}{tmp_path}"}, check=False,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert "OptionError" in last
    assert "put it into a module of its own" in last
    assert "if __name__" not in done.stderr


LARGE = """
import sys, fastdata, numpy
class Own:
    def __init__(self): self.table = numpy.zeros(1 << 20, numpy.uint8)
    def __call__(self, image): return image
next(iter(fastdata.DataLoader(sys.argv[1], 4, num_workers=1, transform=Own(), multiprocessing_context=sys.argv[2])))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_large_transform_of_a_script_that_cannot_be_imported_keeps_nobody_waiting(
    path: str, method: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(LARGE)
    done = subprocess.run(
        [sys.executable, script, path, method], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": os.getcwd()}, check=False,
    )  # fmt: skip
    assert "transform into a module of its own" in done.stderr.splitlines()[-1]


def drawn_by_three(iterator: Any) -> tuple[list[Any], list[BaseException]]:
    """What three threads get of one iterator together."""
    got: list[Any] = []
    wrong: list[BaseException] = []

    def draw() -> None:
        try:
            got.extend(iterator)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got, wrong


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_threads_that_share_an_iterator_get_each_batch_once(path: str, workers: dict[str, Any]) -> None:
    with loader(path, transform=Slow(), **workers) as batches:
        for _ in range(2):
            got, wrong = drawn_by_three(iter(batches))
            assert not wrong
            assert sorted(label for _, labels in got for label in labels.tolist()) == list(range(COUNT))


def test_threads_that_share_a_prefetcher_get_each_batch_once(path: str) -> None:
    with loader(path, num_workers=2, transform=Slow()) as batches:
        got, wrong = drawn_by_three(iter(fastdata.CUDAPrefetcher(batches, device="cpu")))
    assert not wrong
    assert sorted(label for _, labels in got for label in labels.tolist()) == list(range(COUNT))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_a_batch_that_is_asked_for_while_one_is_made_is_refused(path: str, workers: dict[str, Any]) -> None:
    iterators: list[Any] = []
    with loader(path, collate_fn=lambda _: next(iterators[0]), **workers) as batches:
        iterators.append(iter(batches))
        with pytest.raises(fastdata.LoadError, match=r"(?s)while it was making one"):
            next(iterators[0])


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_a_loader_goes_with_what_holds_it_and_is_its_collate_fn(path: str, workers: dict[str, Any]) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.loader = loader(path, collate_fn=self.collate, **workers)

        def collate(self, samples: list[Any]) -> list[Any]:
            return samples

    trainer = Trainer()
    assert len(list(trainer.loader)) == 6
    gone = weakref.ref(trainer.loader)
    del trainer
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_an_iterator_that_is_closed_while_another_thread_waits_lets_it_go(path: str, mode: Any) -> None:
    freed, entered = threading.Event(), threading.Event()

    def waits(image: Any) -> Any:
        freed.wait()
        return image

    batches = loader(path, transform=waits, num_workers=1, worker_mode=mode, multiprocessing_context="fork")
    iterator: Any = iter(batches)
    told: list[BaseException] = []

    def draw() -> None:
        entered.set()
        try:
            next(iterator)
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=draw)
    thread.start()
    entered.wait()
    while not iterator._turn._lock.locked():
        pass
    iterator.close()
    thread.join()
    freed.set()
    assert [type(error) for error in told] == [fastdata.LoadError]
    assert "closed" in str(told[0])
    with loader(path, num_workers=1, worker_mode=mode) as later:
        assert len(list(later)) == 6
    batches.close()
