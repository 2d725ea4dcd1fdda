"""FFCV's Loader over its own file, which is written here from the same pixels when it is not there yet."""

from __future__ import annotations

import os
from typing import Any

import cv2
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from protocol import counted, serve, versions


class Pixels:
    """The images, laid `times` times; each process keeps what it has read."""

    def __init__(self, folder: str, times: int) -> None:
        self._files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self._times = times
        self._read: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._files) * self._times

    def __getitem__(self, index: int) -> tuple[Any, int]:
        time, number = divmod(index, len(self._files))
        if number not in self._read:
            self._read[number] = cv2.cvtColor(cv2.imread(self._files[number]), cv2.COLOR_BGR2RGB)
        return self._read[number], time


def write(job: dict[str, Any]) -> None:
    field = RGBImageField(write_mode=job["write_mode"], jpeg_quality=90)
    writer = DatasetWriter(job["data"] + ".new", {"image": field, "label": IntField()}, num_workers=job["workers"])
    writer.from_indexed_dataset(Pixels(job["pixels"], job["times"]))
    os.rename(job["data"] + ".new", job["data"])


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    if not os.path.exists(job["data"]):
        write(job)
    images: list[Any]
    if job["task"] == "eval":
        images, order = [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)], OrderOption.SEQUENTIAL
    else:
        images, order = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()], OrderOption.RANDOM
    loader = Loader(
        job["data"], batch_size=job["batch_size"], num_workers=job["workers"], os_cache=True, order=order,
        drop_last=False,
        pipelines={"image": [*images, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor()]},
    )  # fmt: skip
    return (lambda _: counted(loader)), versions("ffcv", "numba", "numpy", "torch", "opencv-python")


if __name__ == "__main__":
    serve(prepare)
