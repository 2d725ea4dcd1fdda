"""What a transform is called with: each library gets pictures in its own form, recognised without importing it.

- albumentations: `t(image=array)["image"]`, HWC uint8;
- torchvision (and `nn.Sequential` or scripted modules of it): a uint8 CHW tensor;
- anything else: the HWC uint8 array.

What counts is where a transform's class, or one of its bases, is defined; what it is composed of, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastdata.errors import OptionError

Kind = Literal["albumentations", "torchvision", "plain"]


class PictureCall:
    """A transform as a callable on decoded pictures.

    Args:
        transform: the user's callable.
        joint: it takes the label too and returns both.

    Raises:
        OptionError: it cannot be called, or takes PIL images only.
    """

    def __init__(self, transform: Callable[..., Any], *, joint: bool = False) -> None:
        if not callable(transform):
            raise OptionError(f"a transform must be callable, not {transform!r}")
        self.transform, self._joint = transform, joint
        self._kind = kind_of(transform)
        if self._kind == "torchvision" and (name := _pil_only(transform)):
            raise OptionError(
                f"torchvision's {name} takes PIL images, and pictures come as uint8 tensors here: "
                "leave it out, or use torchvision.transforms.v2.ToDtype(torch.float32, scale=True) in its place"
            )

    def __call__(self, picture: NDArray[Any], label: Any) -> tuple[Any, Any]:
        """The transformed picture and label."""
        if self._kind == "albumentations":
            return self.transform(image=picture)["image"], label
        form = _tensor(picture) if self._kind == "torchvision" else picture
        return self.transform(form, label) if self._joint else (self.transform(form), label)

    def __repr__(self) -> str:
        return repr(self.transform)


def _tensor(picture: Any) -> Any:
    """A picture as CHW; what an earlier transform has made a tensor stays as it is."""
    import torch  # a torchvision transform has loaded it

    return torch.from_numpy(picture).permute(2, 0, 1) if isinstance(picture, np.ndarray) else picture


def kind_of(transform: Any) -> Kind:
    """Which form of picture a transform takes."""
    homes = set(_homes(transform))
    if "albumentations" in homes:
        return "albumentations"
    return "torchvision" if "torchvision" in homes else "plain"


def _homes(transform: Any) -> Iterator[str]:
    """The top-level packages that a transform comes from."""
    if isinstance(transform, functools.partial):
        yield from _homes(transform.func)
        return
    torch = sys.modules.get("torch")  # whoever made a module has loaded it
    if torch is not None and isinstance(transform, torch.jit.ScriptModule):
        yield "torchvision"  # what is compiled takes tensors only
        return
    if torch is not None and isinstance(transform, torch.nn.Module):
        for module in transform.modules():
            yield from _class_homes(type(module))
    elif isinstance(bound := getattr(transform, "__self__", None), object) and bound is not None:
        yield from _class_homes(type(bound))
    yield (getattr(transform, "__module__", None) or "").partition(".")[0]
    yield from _class_homes(type(transform))


def _class_homes(kind: type) -> Iterator[str]:
    return (base.__module__.partition(".")[0] for base in kind.__mro__)


def _pil_only(transform: Any) -> str:
    """The name of a part that refuses tensors: the first version's ToTensor or PILToTensor; "" without one."""
    for part in getattr(transform, "transforms", None) or [transform]:
        kind = type(part)
        if kind.__name__ in ("ToTensor", "PILToTensor") and kind.__module__ == "torchvision.transforms.transforms":
            return kind.__name__
    return ""
