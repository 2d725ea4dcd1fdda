"""Batch the values of one field into a tensor or a list. torch is imported on the first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def int64(values: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
    """Integers as an int64 tensor of shape (N,)."""
    import torch

    return torch.from_numpy(np.array(values, np.int64))


def stacked(values: Sequence[Any]) -> Any:
    """Numbers as a tensor, tensors of equal shape as one with N in front, anything else as a list."""
    import torch

    if values and all(isinstance(value, (int, float)) for value in values):
        return torch.tensor(values)
    if values and all(isinstance(value, torch.Tensor) for value in values):
        return torch.stack(list(values))
    return list(values)


def image_tensor(image: Any) -> Any:
    """An H x W x C array as a C x H x W tensor of the same memory if torch accepts it; anything else unchanged."""
    import torch

    if isinstance(image, np.ndarray) and image.ndim == 3 and image.dtype.kind in "biuf":
        array: NDArray[Any] = image
        if not array.flags.writeable or min(array.strides) < 0:  # torch accepts neither
            array = array.copy()
        return torch.from_numpy(array).permute(2, 0, 1)
    return image
