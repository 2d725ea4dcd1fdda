"""The floor: read, cut, decode, resize and flip the same boxes in N processes, with nothing around it.

The plans are drawn before the clock starts; each process makes its share one after the other, into one buffer.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import cv2
import numpy as np
from protocol import serve, versions
from side_fastdata import chain

import fastdata
from fastdata.codec import jpeg
from fastdata.codec.cropindex import cut_loaded, load
from fastdata.transforms import Pipeline, Plan
from fastdata.transforms.engines import resample, takes_boxes
from fastdata.transforms.plan import needed
from fastdata.transforms.render import dct_scale

# Record, plan, DCT scale, box that is cut out.
Work = list[tuple[int, Plan, int, tuple[int, int, int, int]]]


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
    out, scratch, work = np.empty((224, 224, 3), np.uint8), np.empty(1 << 22, np.uint8), []
    while True:
        name, epoch = pipe.recv()
        if name == "plan":
            work = _plans(reader, share, pipeline, epoch)
        else:
            for index, plan, scale, box in work:
                _make(reader.image(index)[1], plan, scale, box, (out, scratch))
        pipe.send(len(work))


def _plans(reader: fastdata.Reader, share: range, pipeline: Pipeline, epoch: int) -> Work:
    work = []
    for index, row in zip(share, pipeline.numbers(1, epoch, np.array(share)).tolist(), strict=True):
        found = load(reader.image(index)[1])
        if found is None:
            raise SystemExit(f"{reader.path}: the JPEG of record {index} has no crop index")
        width, height = found.header.width, found.header.height
        plan = pipeline.plan((width, height), row)
        scale = dct_scale(plan)
        part = plan.window is not None and takes_boxes(plan.region, plan.size, plan.antialias)
        x0, y0, x1, y1 = needed(plan) if part else plan.box
        x1, y1 = min(-(-x1 // scale) * scale, width), min(-(-y1 // scale) * scale, height)
        work.append((index, plan, scale, (x0 - x0 % scale, y0 - y0 % scale, x1, y1)))
    return work


def _make(data: Any, plan: Plan, scale: int, box: tuple[int, int, int, int], memory: tuple[Any, Any]) -> None:
    out, scratch = memory
    found = load(data)
    assert found is not None
    small, (x, y), size = cut_loaded(found, box, scale)
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
