"""NVIDIA DALI with CPU operators only, over image files.

It is asked for as many batches as an epoch has and for no more, so that it rests while others have their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, math, pipeline_def, types
from protocol import images_below, serve, versions

# Batches under way besides the one in use: DALI's default.
_AHEAD = 2


@pipeline_def
def images(job: dict[str, Any]) -> Any:
    evaluate = job["task"] == "eval"
    data, labels = fn.readers.file(file_root=job["data"], random_shuffle=not evaluate, initial_fill=1000, name="files")
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": job["antialias"]}
    if not evaluate:
        images = fn.decoders.image_random_crop(
            data, output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        images = fn.resize(images, resize_x=224, resize_y=224, **linear)
        return fn.flip(images, horizontal=fn.random.coin_flip()), labels
    height, width = (fn.peek_image_shape(data, dtype=types.INT32)[axis] for axis in (0, 1))
    side = math.min(height, width) * 224 // 256  # then only the middle is decoded
    corner = fn.stack((height - side) // 2, (width - side) // 2)
    images = fn.decoders.image_slice(data, corner, fn.stack(side, side), output_type=types.RGB, axis_names="HW")
    return fn.resize(images, resize_x=224, resize_y=224, **linear), labels


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    size = job["batch_size"]
    # Only whole batches: the reader goes on into its next epoch.
    batches = max(_AHEAD, -(-len(images_below(job["data"])) // size))
    line = images(
        job, batch_size=size, num_threads=job["workers"], device_id=None, prefetch_queue_depth=_AHEAD, seed=1
    )  # fmt: skip
    line.build()
    fresh = [True]

    def epoch(_: int) -> Iterator[int]:
        for _ in range(1 if fresh else _AHEAD):  # the very first call schedules as many as the queue is deep
            line.schedule_run()
        fresh.clear()
        for number in range(batches):
            images, _labels = line.share_outputs()
            yield len(images)
            line.release_outputs()
            if number + _AHEAD < batches:
                line.schedule_run()

    return epoch, versions("nvidia-dali-cuda120")


if __name__ == "__main__":
    serve(prepare)
