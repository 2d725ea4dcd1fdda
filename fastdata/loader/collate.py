"""Collation: what samples and columns become in a batch. torch is imported here where it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pinned(batch: Any) -> Any:
    """A copy of every tensor in it, in torch's pinned memory."""
    import torch

    from fastdata.nest import map_tensors

    return map_tensors(batch, torch.Tensor.pin_memory)


def stacked(column: Any) -> Any:
    """A column as a tensor where it holds numbers, else as it is."""
    import torch

    if isinstance(column, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(column))
    if column and all(isinstance(item, (int, float)) for item in column):
        return torch.tensor(column)
    if column and all(isinstance(item, torch.Tensor) for item in column):
        return torch.stack(column)
    return column


def picture_tensor(sample: Any) -> Any:
    """A sample for `collate_fn`: HWC arrays as CHW tensors, all else as it is."""
    import torch

    if isinstance(sample, np.ndarray) and sample.ndim == 3 and sample.dtype.kind in "biuf":
        array: NDArray[Any] = sample
        if not array.flags.writeable or min(array.strides) < 0:  # torch takes neither
            array = array.copy()
        return torch.from_numpy(array).permute(2, 0, 1)
    return sample
