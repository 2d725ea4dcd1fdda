"""Transforms that the loader's tests send to worker processes: importable there, and small."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
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


def hangs(picture: RGB) -> RGB:
    time.sleep(1000)
    return picture


def draws_late(picture: RGB) -> NDArray[np.float32]:
    """A draw from torch, which is imported only now."""
    import torch

    return torch.rand(2).numpy()


def thread_counts(picture: RGB) -> NDArray[np.int64]:
    import cv2
    import torch

    return np.array([torch.get_num_threads(), cv2.getNumThreads()])


def text(picture: RGB) -> str:
    return "a picture"


def zero_dimensions(picture: RGB) -> Any:
    import torch

    return torch.tensor(float(picture[0, 0, 0]))


def eight_bit_floats(picture: RGB) -> Any:
    import torch

    return torch.from_numpy(picture).to(torch.float8_e4m3fn)


def mirrored(picture: RGB) -> RGB:
    return picture[:, ::-1]


def unsendable(picture: RGB) -> Any:
    return lambda: picture


class Owner:
    """A transform that keeps one with a generator of its own, as albumentations' are, in a list."""

    class Own:
        def __init__(self) -> None:
            self.generator = random.Random()

        def set_random_seed(self, seed: int) -> None:
            self.generator.seed(seed)

    def __init__(self) -> None:
        self.parts = [self.Own()]

    def __call__(self, picture: RGB) -> NDArray[np.float64]:
        return np.array([self.parts[0].generator.random()])


class Adds:
    """Adds a number that processes share."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def __call__(self, picture: RGB) -> NDArray[np.int64]:
        return np.array([self.shared.value])


class Slow:
    """Takes its time."""

    def __call__(self, picture: RGB) -> RGB:
        time.sleep(0.01)
        return picture


def half_unsendable(picture: RGB) -> object:
    """Fails for white, and gives for black what cannot be pickled."""
    if picture[0, 0, 0] == 255:
        raise ValueError("white")
    return (lambda: 0) if picture[0, 0, 0] == 0 else picture


def ends_its_thread(_picture: RGB) -> RGB:
    raise SystemExit(3)


class RunsOut:
    """Raises an error of the machine for pictures whose first pixel says so."""

    def __init__(self, red: int, error: Callable[[], Exception]) -> None:
        self.red, self.error = red, error

    def __call__(self, picture: RGB) -> RGB:
        if int(picture[0, 0, 0]) == self.red:
            raise self.error()
        return picture


class _TooLargeToSend:
    def __reduce__(self) -> str:
        raise MemoryError


def too_large_to_send(_picture: RGB) -> object:
    return _TooLargeToSend()


def label_and_pid(label: int) -> tuple[int, int]:
    return label, os.getpid()


def drawn_label(label: int) -> float:
    """A label with a draw from each generator that is seeded, torch's too where it is loaded."""
    import torch

    return label + random.random() + float(np.random.rand()) + torch.rand(1).item()


def even_only(label: int) -> int:
    if label % 2:
        raise ValueError("this label is odd")
    return label // 2


def unsendable_label(label: int) -> Any:
    return lambda: label


def by_name(samples: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [sample[name] for sample in samples] for name in samples[0]}
