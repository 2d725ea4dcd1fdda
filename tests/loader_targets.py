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


def noisy(image: RGB) -> NDArray[np.float32]:
    """Float HWC with a draw from each generator that the loader seeds (but torch's) in it."""
    return image.astype(np.float32) / 255 + np.float32(random.random()) + np.float32(np.random.rand())


def tensor(image: RGB) -> Any:
    """A CHW tensor with a draw from torch's generator in it."""
    import torch

    return torch.from_numpy(image).permute(2, 0, 1).to(torch.bfloat16) + torch.rand(1).to(torch.bfloat16)


def draws(image: RGB) -> NDArray[np.float64]:
    """One number of each generator."""
    import torch

    return np.array([random.random(), np.random.rand(), torch.rand(1).item()])


class Fails:
    """Raises for images whose first pixel says so, else passes them on."""

    def __init__(self, reds: set[int], how: str = "raise") -> None:
        self.reds, self.how = reds, how

    def __call__(self, image: RGB) -> RGB:
        if int(image[0, 0, 0]) in self.reds:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "hang":
                time.sleep(1000)
            raise ValueError("this image is red")
        return image


def crop_by_red(image: RGB) -> RGB:
    """Images of unequal shapes."""
    return image[: 8 + int(image[0, 0, 0]) % 3].copy()


def pids(image: RGB) -> NDArray[np.int64]:
    return np.array([os.getpid()])


def hangs(image: RGB) -> RGB:
    time.sleep(1000)
    return image


def draws_late(image: RGB) -> NDArray[np.float32]:
    """A draw from torch, which is imported only now."""
    import torch

    return torch.rand(2).numpy()


def thread_counts(image: RGB) -> NDArray[np.int64]:
    import cv2
    import torch

    return np.array([torch.get_num_threads(), cv2.getNumThreads()])


def text(image: RGB) -> str:
    return "an image"


def zero_dimensions(image: RGB) -> Any:
    import torch

    return torch.tensor(float(image[0, 0, 0]))


def eight_bit_floats(image: RGB) -> Any:
    import torch

    return torch.from_numpy(image).to(torch.float8_e4m3fn)


def mirrored(image: RGB) -> RGB:
    return image[:, ::-1]


def unsendable(image: RGB) -> Any:
    return lambda: image


class Owner:
    """A transform that keeps one with a generator of its own, as albumentations' are, in a list."""

    class Own:
        def __init__(self) -> None:
            self.generator = random.Random()

        def set_random_seed(self, seed: int) -> None:
            self.generator.seed(seed)

    def __init__(self) -> None:
        self.parts = [self.Own()]

    def __call__(self, image: RGB) -> NDArray[np.float64]:
        return np.array([self.parts[0].generator.random()])


class Adds:
    """Adds a number that processes share."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def __call__(self, image: RGB) -> NDArray[np.int64]:
        return np.array([self.shared.value])


class Slow:
    """Takes its time."""

    def __call__(self, image: RGB) -> RGB:
        time.sleep(0.01)
        return image


def half_unsendable(image: RGB) -> object:
    """Fails for white, and gives for black what cannot be pickled."""
    if image[0, 0, 0] == 255:
        raise ValueError("white")
    return (lambda: 0) if image[0, 0, 0] == 0 else image


def ends_its_thread(_image: RGB) -> RGB:
    raise SystemExit(3)


class RunsOut:
    """Raises an error of the machine for images whose first pixel says so."""

    def __init__(self, red: int, error: Callable[[], Exception]) -> None:
        self.red, self.error = red, error

    def __call__(self, image: RGB) -> RGB:
        if int(image[0, 0, 0]) == self.red:
            raise self.error()
        return image


class _TooLargeToSend:
    def __reduce__(self) -> str:
        raise MemoryError


def too_large_to_send(_image: RGB) -> object:
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
