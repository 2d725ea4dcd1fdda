"""SPDL: a thread pool that decodes, crops and scales with FFmpeg, in batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import spdl.io
from boxes import middle_box, random_box
from protocol import images_below, serve, versions
from spdl.pipeline import PipelineBuilder


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    samples, evaluate, size = images_below(job["data"]), job["task"] == "eval", job["batch_size"]

    def frames(sample: tuple[str, int]) -> Any:
        packets = spdl.io.demux_image(sample[0])
        width, height = packets.width, packets.height
        x, y, w, h = middle_box(width, height, 224 / 256) if evaluate else random_box(width, height)
        flip = "" if evaluate or random.random() < 0.5 else "hflip,"
        steps = f"crop={w}:{h}:{x}:{y}:exact=1,scale=224:224:flags=bilinear,{flip}format=pix_fmts=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=steps)

    def batch(decoded: list[Any]) -> Any:
        return spdl.io.to_torch(spdl.io.convert_frames(decoded))

    def epoch(_: int) -> Iterator[int]:
        order = samples if evaluate else random.sample(samples, len(samples))
        builder = PipelineBuilder().add_source(order).pipe(frames, concurrency=job["workers"], output_order="input")
        line = builder.aggregate(size).pipe(batch).add_sink(3).build(num_threads=job["workers"])
        with line.auto_stop():
            for images in line:
                yield len(images)

    return epoch, versions("spdl", "spdl-io", "torch")


if __name__ == "__main__":
    serve(prepare)
