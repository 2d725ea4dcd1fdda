"""torchvision's ImageFolder and v2 transforms in torch's DataLoader, as the tutorials have it or tuned.

Plain: PIL images, torchvision's and torch's defaults. Tuned: `decode_image` to uint8 tensors, tensor kernels,
workers persist, four batches ahead.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from protocol import counted, serve, versions
from torch.utils.data import DataLoader
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2


def chain(job: dict[str, Any], tail: list[Any]) -> Any:
    smooth = job["antialias"]
    if job["task"] == "eval":
        return v2.Compose([v2.Resize(256, antialias=smooth), v2.CenterCrop(224), *tail])
    return v2.Compose([v2.RandomResizedCrop(224, antialias=smooth), v2.RandomHorizontalFlip(), *tail])


def tensor(path: str) -> torch.Tensor:
    return decode_image(path, mode=ImageReadMode.RGB)


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    options: dict[str, Any] = {"shuffle": job["task"] != "eval", "num_workers": job["workers"]}
    if job["tuned"]:
        data = torchvision.datasets.ImageFolder(job["data"], chain(job, []), loader=tensor)
        options |= {"persistent_workers": True, "prefetch_factor": 4}
    else:
        data = torchvision.datasets.ImageFolder(job["data"], chain(job, [v2.PILToTensor()]))
    loader = DataLoader(data, job["batch_size"], **options)
    return (lambda _: counted(loader)), versions("torch", "torchvision", "pillow")


if __name__ == "__main__":
    serve(prepare)
