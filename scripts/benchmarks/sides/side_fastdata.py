"""fastdata.DataLoader over a data set of fastdata's."""

from __future__ import annotations

from typing import Any

import torch
from protocol import counted, serve, versions

import fastdata


def chain(job: dict[str, Any]) -> list[Any]:
    """The transforms of a task; the same for every side that takes fastdata's."""
    if job["task"] == "eval":
        return [fastdata.Resize(256, antialias=job["antialias"]), fastdata.CenterCrop(224)]
    return [fastdata.RandomResizedCrop(224, antialias=job["antialias"]), fastdata.RandomHorizontalFlip()]


def prepare(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    loader = fastdata.DataLoader(
        job["data"], job["batch_size"], shuffle=job["task"] != "eval", transform=chain(job),
        num_workers=job["workers"], seed=1, exact=job["exact"],
    )  # fmt: skip
    facts = versions("numpy", "torch", "opencv-python-headless", "cykooz-resizer", "simplejpeg")
    return (lambda _: counted(loader)), {"fastdata": fastdata.__version__, **facts}


if __name__ == "__main__":
    serve(prepare)
