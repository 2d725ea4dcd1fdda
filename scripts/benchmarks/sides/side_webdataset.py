"""webdataset over plain tar shards, in torch's DataLoader: PIL and torchvision's v2 transforms, or OpenCV."""

from __future__ import annotations

from typing import Any

import torch
import webdataset
from protocol import counted, serve, versions


def _vision(job: dict[str, Any]) -> Any:
    import io

    import side_torchvision
    from PIL import Image
    from torchvision.transforms import v2

    transform = side_torchvision.chain(job, [v2.PILToTensor()])
    return lambda data: transform(Image.open(io.BytesIO(data)).convert("RGB"))


def _opencv(job: dict[str, Any]) -> Any:
    import cv2
    import numpy as np
    from side_torch import augmented

    evaluate = job["task"] == "eval"
    return lambda data: augmented(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB), evaluate)


def _one_thread(_worker: int) -> None:
    import sys

    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
    torch.set_num_threads(1)


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    evaluate = job["task"] == "eval"
    image = _opencv(job) if job["opencv"] else _vision(job)
    data = webdataset.WebDataset(job["shards"], shardshuffle=False if evaluate else len(job["shards"]))
    if not evaluate:
        data = data.shuffle(1000)
    data = data.to_tuple("jpg", "cls").map_tuple(image, int).batched(job["batch_size"], partial=True)
    loader = webdataset.WebLoader(
        data, batch_size=None, num_workers=job["workers"], worker_init_fn=_one_thread, persistent_workers=True,
        prefetch_factor=4,
    )  # fmt: skip
    return (lambda _: counted(loader)), versions(
        "torch", "webdataset", "torchvision", "pillow", "opencv-python-headless"
    )


if __name__ == "__main__":
    serve(prepare)
