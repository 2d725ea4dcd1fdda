"""The floor: read, cut, decode, resize and flip the same boxes in N processes, with nothing around it.

Order and plans are drawn before the clock starts. Each process makes its share as the loader does, cutting some before
it decodes them, but into one small buffer, which stays in the processor's cache.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from protocol import serve, versions
from side_fastdata import chain

import fastdata
from fastdata.codec import jpeg
from fastdata.codec.cropindex import cut_loaded, load
from fastdata.formats.files import Scratch
from fastdata.formats.locations import blob_source_of, locations_of
from fastdata.order import permutation
from fastdata.transforms import Pipeline, Plan
from fastdata.transforms.plan import needed, reduction
from fastdata.transforms.resample import resample, takes_boxes

# (file, offset, size), plan, DCT scale, box that is cut out.
Work = list[tuple[list[int], Plan, int, tuple[int, int, int, int]]]
# The small JPEG, where it begins, its size.
Cut = tuple[Any, tuple[int, int], tuple[int, int]]
_TOGETHER = 32


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    context = multiprocessing.get_context("fork")
    reader, pipeline, pipes = fastdata.open(job["data"]), Pipeline(chain(job)), []
    for first in range(job["workers"]):
        here, there = context.Pipe()
        share = range(first, len(reader), job["workers"])
        context.Process(target=_work, args=(there, reader, share, pipeline), daemon=True).start()
        pipes.append(here)

    def all_of_them(*message: Any) -> list[int]:
        for pipe in pipes:
            pipe.send(message)
        return [pipe.recv() for pipe in pipes]

    def run() -> Iterator[int]:
        yield from all_of_them("run", 0)

    def epoch(number: int) -> Iterator[int]:
        all_of_them("plan", number)
        return run()

    return epoch, versions("numpy", "opencv-python-headless", "cykooz-resizer", "simplejpeg")


def _work(pipe: Connection, reader: fastdata.Reader, share: range, pipeline: Pipeline) -> None:
    cv2.setNumThreads(0)
    memory, work = (np.empty((224, 224, 3), np.uint8), np.empty(1 << 22, np.uint8)), Work()
    source, scratch = blob_source_of(reader), Scratch()
    while True:
        name, epoch = pipe.recv()
        if name == "plan":
            work = _plans(reader, permutation(1, epoch, 0, len(reader))[share.start :: share.step], pipeline, epoch)
        else:
            for first in range(0, len(work), _TOGETHER):
                some = work[first : first + _TOGETHER]
                cuts = [_cut(source.read(*place, scratch), scale, box) for place, _, scale, box in some]
                for (_, plan, scale, _), cut in zip(some, cuts, strict=True):
                    _finish(cut, plan, scale, memory)
        pipe.send(len(work))


def _plans(reader: fastdata.Reader, share: NDArray[np.int64], pipeline: Pipeline, epoch: int) -> Work:
    work = Work()
    rows, locations = pipeline.numbers(1, epoch, share).tolist(), locations_of(reader, share).tolist()
    for (index, *place, _), row in zip(locations, rows, strict=True):
        found = load(reader.image(index)[1])
        if found is None:
            raise SystemExit(f"{reader.path}: the JPEG of record {index} has no crop index")
        height, width = found.header.size
        plan = pipeline.plan(found.header.size, row)
        scale = reduction(plan)
        part = plan.window is not None and takes_boxes(plan.region, plan.size, plan.antialias)
        x0, y0, x1, y1 = needed(plan) if part else plan.box
        x1, y1 = min(-(-x1 // scale) * scale, width), min(-(-y1 // scale) * scale, height)
        work.append((place, plan, scale, (x0 - x0 % scale, y0 - y0 % scale, x1, y1)))
    return work


def _cut(data: Any, scale: int, box: tuple[int, int, int, int]) -> Cut:
    found = load(data)
    assert found is not None
    small, origin, size = cut_loaded(found, box, scale)
    return bytes(small) if small is found.jpeg else small, origin, size


def _finish(cut: Cut, plan: Plan, scale: int, memory: tuple[Any, Any]) -> None:
    (out, scratch), (small, (x, y), size) = memory, cut
    pixels = jpeg.pixels(small, scale, size, scratch)
    assert pixels is not None
    x0, y0, x1, y1 = plan.box
    region: Any = (x0 - x, y0 - y, x1 - x, y1 - y)
    if scale > 1:
        x, y = x // scale, y // scale
        region = (x0 / scale - x, y0 / scale - y, x1 / scale - x, y1 / scale - y)
    made = resample(pixels, region, plan.size, plan.window, plan.antialias, out)
    if plan.flip_x:
        cv2.flip(made, 1, dst=out)
    elif made is not out:
        out[...] = made


if __name__ == "__main__":
    serve(prepare)
