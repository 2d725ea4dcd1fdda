"""How a side of `scripts/bench load` talks with the script that measures it: one line of JSON each way, on pipes.

A side is a program of its own, so that each can run in the environment its library needs. It imports nothing of
fastdata unless fastdata is what it measures. `serve(prepare)` is all of it:

    in   {"do": "prepare", ...what is to be measured}     out  {"facts": {...}}
    in   {"do": "epoch", "number": k}                     out  {"seconds": s, "samples": n}
    in   the end of the pipe: the side ends

What a library prints goes to stderr; an exception is answered as {"error": its traceback}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# Makes an epoch: a lazy iterable over how many samples each batch has. The clock starts with its first step.
Epoch = Callable[[int], Iterable[int]]
Prepare = Callable[[dict[str, Any]], tuple[Epoch, dict[str, Any]]]


def serve(prepare: Prepare) -> None:
    """Answer until the other side closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    epoch: Epoch | None = None
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if job.pop("do") == "prepare":
                epoch, facts = prepare(job)
                answer: dict[str, Any] = {"facts": facts}
            else:
                assert epoch is not None
                answer = _timed(epoch(job["number"]))
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")


def _timed(batches: Iterable[int]) -> dict[str, Any]:
    begin = time.perf_counter()
    samples = sum(batches)
    return {"seconds": time.perf_counter() - begin, "samples": samples}


def counted(loader: Iterable[Any]) -> Iterator[int]:
    """The sizes of the batches `(images, labels)` of a loader, which is asked for an epoch with the first step."""
    for images, _ in loader:
        yield len(images)


def versions(*packages: str) -> dict[str, str]:
    """What is installed of these distributions in this environment, and its Python."""
    found = {"python": sys.version.split()[0]}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def images_below(root: str) -> list[tuple[str, int]]:
    """(path, class number) of every file in the class folders of `root`, in order."""
    return [
        (os.path.join(root, name, file), label)
        for label, name in enumerate(sorted(os.listdir(root)))
        for file in sorted(os.listdir(os.path.join(root, name)))
    ]
