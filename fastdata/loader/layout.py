"""Layout: how the samples of a batch lie in memory, and how a batch is seen as a tensor.

In: one sample, as transforms gave it. Out: its shape and type, where each sample of a batch goes, and the tensor over
a whole batch. HWC arrays lie as they are and are seen as NCHW (channels_last); tensors keep their own shape.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError

if TYPE_CHECKING:
    import torch

# Kinds of numbers that arrays and tensors share; objects and strings have no fixed size.
_NUMBERS = "biufc"
# Tensors of these lie in memory as integers of the same size: numpy has no such type.
_FOREIGN = {"bfloat16": "int16"}


class Layout(NamedTuple):
    """The shape and type that every sample of a loader has.

    Attributes:
        shape: of one sample, as it lies in memory.
        dtype: numpy's name of its type, or "bfloat16".
        channels_last: it is an HWC array, to be seen as CHW.
        views: so many of them make a sample; each has a batch of its own in memory, one behind the other.
    """

    shape: tuple[int, ...]
    dtype: str
    channels_last: bool
    views: int = 1

    @classmethod
    def image(cls, height: int, width: int, views: int = 1) -> Layout:
        """The layout of decoded images of one size."""
        return cls((height, width, 3), "uint8", channels_last=True, views=views)

    @classmethod
    def of(cls, sample: Any, views: int = 1) -> Layout:
        """The layout of batches of samples like this one.

        Raises:
            OptionError: it is neither an array nor a tensor of numbers.
        """
        if _is_tensor(sample):
            name = str(sample.dtype).removeprefix("torch.")
            if name not in _FOREIGN and not hasattr(np, "bool_" if name == "bool" else name):
                raise OptionError(
                    f"transform returned a tensor of {name}, which batches cannot be made of here; return float32, "
                    "float16, bfloat16, uint8, ... (and cast on the device)"
                )
            return cls(tuple(sample.shape), name, channels_last=False, views=views)
        if isinstance(sample, np.ndarray) and sample.dtype.kind in _NUMBERS:
            return cls(sample.shape, sample.dtype.name, channels_last=sample.ndim == 3, views=views)
        raise OptionError(
            f"transform returned {type(sample).__name__}; return an HWC array or a CHW tensor of numbers, "
            "or give collate_fn, which may take anything"
        )

    @property
    def stored(self) -> np.dtype[Any]:
        return np.dtype(_FOREIGN.get(self.dtype, self.dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of one sample, with all of its views."""
        return self.views * math.prod(self.shape) * self.stored.itemsize

    def batch(self, buffer: NDArray[np.uint8], count: int) -> NDArray[Any]:
        """The first `count` samples of a buffer, as an array: by sample, by view, then their shape."""
        room = buffer.nbytes // self.nbytes if self.nbytes else count
        whole = buffer[: room * self.nbytes].view(self.stored).reshape(self.views, room, *self.shape)
        return whole[:, :count].swapaxes(0, 1)

    def put(self, sample: Any, place: NDArray[Any]) -> None:
        """Copy a sample to its place in a batch.

        Raises:
            OptionError: it has another shape or type than the first one had.
        """
        if (other := Layout.of(sample, self.views)) != self:
            raise unequal(self, other)
        place[...] = _as_array(sample) if _is_tensor(sample) else sample

    def tensor(self, batch: NDArray[Any]) -> torch.Tensor | list[torch.Tensor]:
        """A batch as training sees it, a list where there are several views; it keeps the array alive."""
        import torch

        tensors = [torch.from_numpy(batch[:, view]) for view in range(self.views)]
        if self.dtype in _FOREIGN:
            tensors = [tensor.view(getattr(torch, self.dtype)) for tensor in tensors]
        if self.channels_last:
            tensors = [tensor.permute(0, 3, 1, 2) for tensor in tensors]
        return tensors[0] if self.views == 1 else tensors

    def __str__(self) -> str:
        return f"{self.dtype} {' x '.join(map(str, self.shape))}"


def unequal(first: Layout, other: Layout) -> OptionError:
    """The error for samples of different shapes or types without a `collate_fn`."""
    return OptionError(
        f"samples differ: {first} came first, then {other}; let a transform make them equal (fastdata.Resize, "
        "fastdata.CenterCrop, fastdata.RandomResizedCrop, ...), or give collate_fn"
    )


def _is_tensor(sample: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(sample, torch.Tensor)


def _as_array(tensor: Any) -> NDArray[Any]:
    import torch

    plain = tensor.detach()
    name = str(plain.dtype).removeprefix("torch.")
    array: NDArray[Any] = (plain.view(getattr(torch, _FOREIGN[name])) if name in _FOREIGN else plain).numpy()
    return array
