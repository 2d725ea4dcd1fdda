"""torch's DataLoader, with its defaults or tuned (workers persist, four batches ahead), in fastdata's own environment.

Over fastdata.ImageDataset with fastdata's transforms, or over an OpenCV data set as many write it.
"""

from __future__ import annotations

import random
from typing import Any

import cv2
import torch
from boxes import middle_box, random_box
from protocol import counted, images_below, serve, versions
from side_fastdata import chain
from torch.utils.data import DataLoader, Dataset

import fastdata


class OpenCVFolder(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, root: str, evaluate: bool) -> None:
        self._samples, self._evaluate = images_below(root), evaluate

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._samples[index]
        return augmented(cv2.imread(path, cv2.IMREAD_COLOR_RGB), self._evaluate), label


def augmented(image: Any, evaluate: bool) -> torch.Tensor:
    """Crop, linear resize and flip in OpenCV."""
    height, width = image.shape[:2]
    x, y, w, h = middle_box(width, height, 224 / 256) if evaluate else random_box(width, height)
    image = cv2.resize(image[y : y + h, x : x + w], (224, 224), interpolation=cv2.INTER_LINEAR)
    if not evaluate and random.random() < 0.5:
        image = cv2.flip(image, 1)
    return torch.from_numpy(image).permute(2, 0, 1)


def one_thread(_worker: int) -> None:
    cv2.setNumThreads(0)
    torch.set_num_threads(1)


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    evaluate = job["task"] == "eval"
    data: Dataset[Any] = (
        OpenCVFolder(job["data"], evaluate) if job["opencv"] else fastdata.ImageDataset(job["data"], chain(job))
    )
    tuned = {"worker_init_fn": one_thread, "persistent_workers": True, "prefetch_factor": 4} if job["tuned"] else {}
    loader = DataLoader(data, job["batch_size"], shuffle=not evaluate, num_workers=job["workers"], **tuned)
    return (lambda _: counted(loader)), versions("numpy", "torch", "opencv-python-headless", "cykooz-resizer")


if __name__ == "__main__":
    serve(prepare)
