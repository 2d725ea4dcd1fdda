"""Transforms that the loader's tests send to worker processes: importable there, and small."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

RGB = NDArray[np.uint8]


def noisy(picture: RGB) -> NDArray[np.float32]:
    """Float HWC with a draw from each generator that the loader seeds (but torch's) in it."""
    return picture.astype(np.float32) / 255 + np.float32(random.random()) + np.float32(np.random.rand())


def tensor(picture: RGB) -> Any:
    """A CHW tensor with a draw from torch's generator in it."""
    import torch

    return torch.from_numpy(picture).permute(2, 0, 1).to(torch.bfloat16) + torch.rand(1).to(torch.bfloat16)


def draws(picture: RGB) -> NDArray[np.float64]:
    """One number of each generator."""
    import torch

    return np.array([random.random(), np.random.rand(), torch.rand(1).item()])


class Fails:
    """Raises for pictures whose first pixel says so, else passes them on."""

    def __init__(self, reds: set[int], how: str = "raise") -> None:
        self.reds, self.how = reds, how

    def __call__(self, picture: RGB) -> RGB:
        if int(picture[0, 0, 0]) in self.reds:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "hang":
                time.sleep(1000)
            raise ValueError("this picture is red")
        return picture


def crop_by_red(picture: RGB) -> RGB:
    """Pictures of unequal shapes."""
    return picture[: 8 + int(picture[0, 0, 0]) % 3].copy()


def pids(picture: RGB) -> NDArray[np.int64]:
    return np.array([os.getpid()])
