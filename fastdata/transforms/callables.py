"""Call a user's transform with an image in the form that its library takes.

- albumentations: `t(image=array)["image"]`, HWC uint8;
- torchvision (and `nn.Sequential` or scripted modules of it): a uint8 CHW tensor;
- anything else: the HWC uint8 array.

`form` overrides this: "array", "tensor" or "pil".

The library is that in which the transform's class, one of its bases, or one of its parts is defined. It is recognised
without importing it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastdata.checks import choice, function
from fastdata.errors import FastdataError, LoadError, OptionError, raise_resource_error

Kind = Literal["albumentations", "torchvision", "plain"]
Form = Literal["array", "tensor", "pil"] | None


class TransformCall:
    """A user's transform as a callable on decoded images.

    Args:
        transform: the user's callable.
        joint: it takes the label too and returns both.
        form: what it is called with: "array", "tensor" or "pil"; None decides by where its class is defined.

    Raises:
        OptionError: it is not callable, or does not take this form.
    """

    def __init__(self, transform: Callable[..., Any], *, joint: bool = False, form: Form = None) -> None:
        self.transform = function("a transform", transform)
        self._joint, self._form = joint, form
        self._kind = kind_of(transform)
        if self._kind == "albumentations" and form not in (None, "array"):
            raise OptionError(f"form={form!r}: albumentations takes arrays; leave form out")

    def __call__(self, image: Any, label: Any) -> tuple[Any, Any]:
        """The transformed image and label.

        Raises:
            LoadError: the transform raised an error; the message says what it was called with.
        """
        given = self._in_form(image)
        with UserCall(f"transform {_name(self.transform)}", lambda: self._hint(given)):
            if self._kind == "albumentations":
                return self.transform(image=given)["image"], label
            return self.transform(given, label) if self._joint else (self.transform(given), label)

    def _in_form(self, image: Any) -> Any:
        """Convert an array to the form that the transform takes; what an earlier transform returned is unchanged."""
        if not isinstance(image, np.ndarray):
            return image
        return as_form(image, "tensor" if self._form is None and self._kind == "torchvision" else self._form)

    def _hint(self, given: Any) -> str:
        """What to do if the transform may have expected another form of image."""
        if self._kind != "plain" or self._form is not None or not isinstance(given, np.ndarray):
            return ""
        return (
            f"; it was called with a {given.dtype} array of {' x '.join(map(str, given.shape))}, since its class is "
            "not from torchvision: form='pil' or form='tensor' gives it a PIL image or a C x H x W tensor"
        )

    def __repr__(self) -> str:
        return repr(self.transform)


def as_form(image: NDArray[Any], form: Form) -> Any:
    """Convert an H x W x 3 uint8 array to a form."""
    if form == "pil":
        from PIL import Image

        return Image.fromarray(image)
    if form == "tensor":
        import torch

        return torch.from_numpy(image).permute(2, 0, 1)
    return image


def check_form(transforms: Iterable[Callable[..., Any]], form: object) -> None:
    """Check the form, and that the transforms take it.

    Raises:
        OptionError: an unknown form, or a transform that needs another one.
    """
    choice("form", form, (*get_args(get_args(Form)[0]), None))
    names = [_pil_only(one) for one in transforms if form is None and kind_of(one) == "torchvision"]
    for name in filter(None, names):
        raise OptionError(
            f"torchvision's {name} takes PIL images, and images come as uint8 tensors here: give form='pil', or "
            "torchvision.transforms.v2.ToDtype(torch.float32, scale=True) in its place"
        )


class UserCall:
    """Turn whatever a user's function raises in the block into a LoadError that names the function.

    A StopIteration of it would otherwise end the loop that the sample is made for. Errors of fastdata and of exhausted
    resources are not changed. This is a class because contextlib mistakes a RuntimeError that was raised from a
    StopIteration for that StopIteration.

    Args:
        what: the name of the function, for the message.
        hint: returns what is added to the message; called only if something was raised.
    """

    __slots__ = ("_hint", "_what")

    def __init__(self, what: str, hint: Callable[[], str] | None = None) -> None:
        self._what, self._hint = what, hint

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, FastdataError):
            return
        raise_resource_error(error, self._what)
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise LoadError(f"{self._what}: {reason}{self._hint() if self._hint else ''}") from error


def _name(transform: Any) -> str:
    return getattr(transform, "__qualname__", None) or type(transform).__qualname__


def kind_of(transform: Any) -> Kind:
    """The kind of a transform, by the packages that it is defined in."""
    packages = set(_packages(transform))
    if "albumentations" in packages:
        return "albumentations"
    return "torchvision" if "torchvision" in packages else "plain"


def _packages(transform: Any) -> Iterator[str]:
    """The top-level packages that a transform is defined in."""
    if isinstance(transform, functools.partial):
        yield from _packages(transform.func)
        return
    torch = sys.modules.get("torch")  # if there is a torch module, torch is loaded
    if torch is not None and isinstance(transform, torch.jit.ScriptModule):
        yield "torchvision"  # a scripted module takes tensors only
        return
    if torch is not None and isinstance(transform, torch.nn.Module):
        for module in transform.modules():
            yield from _class_packages(type(module))
    elif isinstance(bound := getattr(transform, "__self__", None), object) and bound is not None:
        yield from _class_packages(type(bound))
    yield (getattr(transform, "__module__", None) or "").partition(".")[0]
    yield from _class_packages(type(transform))


def _class_packages(kind: type) -> Iterator[str]:
    return (base.__module__.partition(".")[0] for base in kind.__mro__)


def _pil_only(transform: Any) -> str:
    """The name of a part that refuses tensors: ToTensor or PILToTensor of torchvision's v1; "" without one."""
    for part in getattr(transform, "transforms", None) or [transform]:
        kind = type(part)
        if kind.__name__ in ("ToTensor", "PILToTensor") and kind.__module__ == "torchvision.transforms.transforms":
            return kind.__name__
    return ""
