"""fastdata.DataLoader when things go wrong: bad samples, dead or stuck workers, a parent that is killed."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import fastdata
from fastdata.codec.encode import encode
from tests import samples
from tests.loader_targets import Fails, Slow, crop_by_red, ends_its_thread, half_unsendable

COUNT = 24
BAD = 13
# Images are plain, red by their index, so that a transform can tell which one it has.
WORKERS = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_mode": "thread"}]
IDS = ["none", "processes", "threads"]
SLOW = Slow()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return samples.plain_images(tmp_path_factory.mktemp("faults") / "d.lmdb")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    return samples.plain_images(tmp_path_factory.mktemp("damaged") / "d.tar", damaged={BAD})


def loader(data: str, **options: Any) -> fastdata.DataLoader:
    return fastdata.DataLoader(data, **({"batch_size": 4} | options))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_a_record_that_cannot_be_decoded_is_named(damaged: str, workers: dict[str, Any]) -> None:
    with loader(damaged, **workers) as batches:
        for _ in range(2):  # the loader can be iterated again
            iterator = iter(batches)
            assert [next(iterator)[1].tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
            with pytest.raises(fastdata.DecodeError, match=r"r/13(.|\n)*The stack where it was made"):
                next(iterator)


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_a_file_that_is_cut_during_an_epoch_is_an_error_that_names_it(tmp_path: Path, workers: dict[str, Any]) -> None:
    place = tmp_path / "d.lmdb"
    with loader(samples.plain_images(place), **workers, prefetch_factor=1) as batches:
        iterator = iter(batches)
        next(iterator)
        os.truncate(place / "data.mdb", 2000)
        with pytest.raises(fastdata.FormatError, match=r"2000 bytes, but its data set says"):
            list(iterator)


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_an_error_in_a_transform_names_the_record_and_shows_its_stack(path: str, workers: dict[str, Any]) -> None:
    with (
        loader(path, transform=Fails({BAD}), **workers) as batches,
        pytest.raises(fastdata.LoadError, match=r"r/13(.|\n)*this image is red(.|\n)*loader_targets"),
    ):
        list(batches)


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("bad", [{BAD}, {0}, {0, 1, 2, 3}, set(range(0, COUNT, 2))])
def test_skipped_samples_are_replaced_the_same_way_by_everybody(
    path: str, workers: dict[str, Any], bad: set[int]
) -> None:
    def run(**options: Any) -> tuple[list[int], list[tuple[str, str]]]:
        with loader(path, transform=Fails(bad), on_error="skip", shuffle=True, seed=5, **options) as batches:
            labels = []
            for images, numbers in batches:
                assert images[:, 0, 0, 0].tolist() == numbers.tolist()
                labels += numbers.tolist()
            return labels, sorted(batches.skipped)

    labels, skipped = run(**workers)
    assert len(labels) == COUNT
    assert not bad & set(labels)
    assert {key for key, _ in skipped} == {f"r/{i}" for i in bad}
    assert all("red" in reason for _, reason in skipped)
    assert run(num_workers=1) == (labels, skipped)


def test_a_data_set_without_a_good_record_is_an_error_not_a_hang(path: str) -> None:
    batches = loader(path, transform=Fails(set(range(COUNT))), on_error="skip", num_workers=1)
    with batches, pytest.raises(fastdata.LoadError, match="red"):
        next(iter(batches))


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_giving_up_comes_behind_the_good_batches(tmp_path: Path, workers: dict[str, Any]) -> None:
    with fastdata.create(tmp_path / "few.tar") as writer:
        for i in range(3000):
            blob = encode(np.full((16, 16, 3), i, np.uint8), "png") if i < 8 else b"bad"
            writer.write(fastdata.Record(f"r/{i}", {"png": blob, "cls": b"0"}))
    with loader(str(tmp_path / "few.tar"), transform=SLOW, on_error="skip", **workers) as batches:
        iterator = iter(batches)
        assert len(next(iterator)[0]) == len(next(iterator)[0]) == 4
        with pytest.raises(fastdata.LoadError, match="32 records in a row failed"):
            list(iterator)


def test_a_replacement_that_cannot_be_sent_is_told(tmp_path: Path) -> None:
    with fastdata.create(tmp_path / "d.tar") as writer:
        for i in range(72):
            image = np.full((16, 16, 3), 255 if i < 40 else 100 if i < 64 else 0, np.uint8)
            writer.write(fastdata.Record(f"r/{i}", {"png": encode(image, "png"), "cls": b"0"}))
    options = {"batch_size": 64, "transform": half_unsendable, "collate_fn": list, "on_error": "skip", "num_workers": 2}
    with (
        loader(str(tmp_path / "d.tar"), **options) as batches,
        pytest.raises(fastdata.OptionError, match="cannot be sent to the main process"),
    ):
        list(batches)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_thread_that_a_transform_ends_is_an_error_not_a_hang(path: str, batch_size: int) -> None:
    options = {"num_workers": 2, "worker_mode": "thread", "batch_size": batch_size}
    with (
        loader(path, transform=ends_its_thread, **options) as batches,
        pytest.raises(fastdata.WorkerError, match=r"SystemExit\(3\)"),
    ):
        list(batches)
    with (
        loader(path, transform=[fastdata.CenterCrop(8), ends_its_thread], collate_fn=list, **options) as batches,
        pytest.raises(fastdata.WorkerError, match=r"SystemExit\(3\)"),
    ):
        list(batches)


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_closing_from_another_thread_ends_the_wait(path: str, mode: Any) -> None:
    batches = loader(path, num_workers=2, worker_mode=mode, transform=SLOW)
    told = queue.SimpleQueue[Any]()

    def consume() -> None:
        try:
            while True:
                for images, _ in batches:
                    told.put(len(images))
        except Exception as error:
            told.put(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert told.get(timeout=30) == 4
    batches.close()
    while isinstance(last := told.get(timeout=30), int):
        pass
    consumer.join()
    batches.close()
    assert isinstance(last, fastdata.LoadError), last
    assert "closed while it was being iterated" in str(last)


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_unequal_shapes_are_an_error_that_names_the_cure(path: str, workers: dict[str, Any]) -> None:
    batches = loader(path, transform=crop_by_red, **workers)
    with batches, pytest.raises(fastdata.OptionError, match="collate_fn"):
        list(batches)


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_collate_fn_takes_unequal_shapes(path: str, workers: dict[str, Any]) -> None:
    with loader(path, transform=crop_by_red, collate_fn=lambda samples: samples, **workers) as batches:
        samples = [sample for batch in batches for sample in batch]
    assert [tuple(image.shape) for image, _ in samples] == [(3, 8 + i % 3, 16) for i in range(COUNT)]
    assert [int(label) for _, label in samples] == list(range(COUNT))


def test_a_killed_worker_is_noticed_at_once_and_the_loader_goes_on_afterwards(path: str, start_method: str) -> None:
    options = {"num_workers": 2, "prefetch_factor": 1, "multiprocessing_context": start_method}
    # Few batches ahead, so that the first one is made before the bad one is begun, however late a worker starts.
    with loader(path, transform=Fails({BAD}, "kill"), **options) as batches:
        start = time.monotonic()
        with pytest.raises(fastdata.WorkerError, match="signal 9"):
            list(batches)
        assert time.monotonic() - start < 30  # not a hang; how fast is a benchmark's matter
        assert next(iter(batches))[1].tolist() == [0, 1, 2, 3]


def test_a_worker_killed_between_epochs_is_an_error_too(path: str) -> None:
    with loader(path, num_workers=1) as batches:
        list(batches)
        for child in multiprocessing.active_children():  # not multiprocessing's own helpers, which other tests need
            child.kill()
        with pytest.raises(fastdata.WorkerError):
            list(batches)
        assert len(list(batches)) == 6


def test_a_stuck_worker_counts_against_the_timeout(path: str) -> None:
    batches = loader(path, transform=Fails({BAD}, "hang"), num_workers=1, timeout=0.5)
    with batches, pytest.raises(fastdata.WorkerError, match="timeout"):
        list(batches)


def test_a_transform_that_cannot_be_sent_is_named_with_the_cure(path: str) -> None:
    batches = loader(path, transform=lambda image: image, num_workers=1, multiprocessing_context="spawn")
    with batches, pytest.raises(fastdata.OptionError, match="fork"):
        iter(batches)


SCRIPT = """
import sys, os
import fastdata
def main():
    loader = fastdata.DataLoader(sys.argv[1], 2, num_workers=2, multiprocessing_context=sys.argv[2])
    batches = iter(loader)
    next(batches)
    import multiprocessing
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    sys.stdin.read()
if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(path: str, start_method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        [sys.executable, script, path, start_method], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        if os.path.isdir("/dev/shm"):  # what they share has no name there, so nothing can stay
            maps = [each.path for one in (psutil.Process(parent.pid), *workers) for each in one.memory_maps()]
            assert not [name for name in maps if name.startswith("/dev/shm/") and os.path.exists(name)]
        parent.kill()
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive


@pytest.mark.slow
def test_ctrl_c_ends_a_training_script_cleanly(path: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        [sys.executable, script, path, "fork"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment, start_new_session=True, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does it: to the workers as well
        _, words = parent.communicate(timeout=30)
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
        assert words.count("Traceback") == 1
        assert "KeyboardInterrupt" in words


@pytest.mark.slow
def test_workers_start_without_the_main_module(path: str, tmp_path: Path) -> None:
    """C9: what a training script imports at its top is not imported again by each worker."""
    script = tmp_path / "train.py"
    script.write_text("print('imported', flush=True)\n" + SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    for method in ("spawn", "forkserver"):
        with subprocess.Popen(
            [sys.executable, script, path, method], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
            text=True,
        ) as parent:  # fmt: skip
            out, _ = parent.communicate("", timeout=60)
        assert out.count("imported") == 1
