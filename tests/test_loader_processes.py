"""The loader's processes among others: forks of the training script, its start method, its main module, its end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import fastdata
from fastdata.formats.base import Reader
from fastdata.processes.main_module import needs_main
from tests import samples
from tests.loader_targets import Adds

pytestmark = pytest.mark.slow

COUNT = 24
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return samples.plain_images(tmp_path_factory.mktemp("processes") / "d.lmdb")


def loader(data: Any, **options: Any) -> fastdata.DataLoader:
    return fastdata.DataLoader(data, **({"batch_size": 4} | options))


def reds(batch: Any) -> list[int]:
    return batch[0][:, 0, 0, 0].tolist()  # type: ignore[no-any-return]


def in_fork(function: Any) -> int:
    """The exit status of a forked child that does this: 0 when it returns True."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if function() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_fork
def test_a_fork_that_drops_its_copy_of_an_iterator_changes_nothing(path: str) -> None:
    with loader(path, num_workers=1) as batches:
        held = [iter(batches)]
        rows = reds(next(held[0]))
        assert in_fork(lambda: held.clear() is None) == 0
        for batch in held[0]:
            rows += reds(batch)
    assert rows == list(range(COUNT))


@needs_fork
@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_fork_begins_iterators_of_its_own(path: str, mode: Any) -> None:
    with loader(path, num_workers=1, worker_mode=mode) as batches:
        list(batches)  # leaves workers for the next epoch, which are the parent's
        inherited = iter(batches)
        next(inherited)

        def child() -> bool:
            with pytest.raises(fastdata.WorkerError, match="parent"):
                next(inherited)
            own = [row for batch in batches for row in reds(batch)]
            batches.close()
            return own == list(range(COUNT))

        assert in_fork(child) == 0
        assert reds(next(inherited)) == [4, 5, 6, 7]


def test_closing_a_loader_ends_the_iterators_in_use(path: str) -> None:
    batches = loader(path, num_workers=2)
    iterator = iter(batches)
    kept = next(iterator)
    batches.close()
    assert not multiprocessing.active_children()
    assert reds(kept) == [0, 1, 2, 3]
    with pytest.raises(fastdata.LoadError, match="closed"):
        next(iterator)
    assert len(list(batches)) == 6  # it can be iterated again
    batches.close()
    assert not multiprocessing.active_children()


def test_the_start_method_stays_open_for_the_program_to_set(path: str) -> None:
    script = (
        "import sys, multiprocessing, fastdata\n"
        "if __name__ == '__main__':\n"
        "    with fastdata.DataLoader(sys.argv[1], 4, num_workers=1) as loader:\n"
        "        next(iter(loader))\n"
        "    multiprocessing.set_start_method('spawn')\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=60)


class Spy:
    """A reader that notes the main module whenever it is pickled, as it is while a worker is being started."""

    def __init__(self, inner: Reader, seen: list[Any]) -> None:
        self.inner, self.seen = inner, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> fastdata.Record:
        return self.inner[index]

    def __enter__(self) -> Spy:
        return self

    def __exit__(self, *_: object) -> None:
        self.inner.close()

    def __reduce__(self) -> Any:
        self.seen.append(sys.modules["__main__"])
        return fastdata.open, (self.inner.path,)


def test_the_main_module_stays_in_its_place_while_workers_start(path: str) -> None:
    """Other threads may be pickling or unpickling what the script defines."""
    main, seen = sys.modules["__main__"], []  # type: ignore[var-annotated]
    with loader(Spy(fastdata.open(path), seen), num_workers=1, multiprocessing_context="spawn") as batches:
        next(iter(batches))
    assert seen
    assert all(module is main for module in seen)


def test_what_comes_from_the_main_module_is_known_wherever_it_lies() -> None:
    here = type("Here", (), {"__module__": "__main__"})
    sys.modules["__main__"].Here = here  # type: ignore[attr-defined]
    try:
        assert needs_main({"reader": here()}) is True
        assert needs_main([fastdata.CenterCrop(3)]) is False
        assert needs_main(threading.Lock()) is None  # cannot be determined beforehand
    finally:
        del sys.modules["__main__"].Here  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_transforms_may_hold_what_processes_share(path: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    transform = Adds(context.Value("i", 5))
    with pytest.raises(RuntimeError):
        pickle.dumps(transform)  # at any other time than a process's start
    with loader(path, transform=transform, num_workers=1, multiprocessing_context=method) as batches:
        assert next(iter(batches))[0].tolist() == [[5]] * 4


SURVIVED = """
import sys, os, multiprocessing
import fastdata
if __name__ == "__main__":
    loader = fastdata.DataLoader(sys.argv[1], 2, num_workers=2, multiprocessing_context=sys.argv[2])
    batches = iter(loader)
    next(batches)
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    os.kill(os.getpid(), 9)
"""


@needs_fork
def test_workers_end_with_their_parent_though_a_fork_of_it_lives_on(
    path: str, start_method: str, tmp_path: Path
) -> None:
    """It keeps open every pipe by which they could tell."""
    script = tmp_path / "train.py"
    script.write_text(SURVIVED)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        [sys.executable, script, path, start_method], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
        assert parent.stdin is not None
        parent.stdin.close()


def _loads(path: str, answers: Any) -> None:
    try:
        next(iter(loader(path, num_workers=1)))
    except fastdata.OptionError as error:
        answers.put(str(error))


def test_a_process_that_may_have_no_children_is_told_what_to_do(path: str) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_loads, args=(path, answers), daemon=True)
    process.start()
    assert "num_workers=0" in answers.get()
    process.join()
    process.close()
    answers.close()


def test_a_script_that_its_workers_cannot_import_is_told_what_to_do(path: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, fastdata\n"
        "def own(image): return image\n"
        "loader = fastdata.DataLoader(sys.argv[1], 4, num_workers=1, transform=own, multiprocessing_context='spawn')\n"
        "next(iter(loader))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, script, path], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "transform into a module of its own" in done.stderr.splitlines()[-1]
