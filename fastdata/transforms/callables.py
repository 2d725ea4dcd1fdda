"""What a transform is called with: each library gets pictures in its own form, recognised without importing it.

- albumentations: `t(image=array)["image"]`, HWC uint8;
- torchvision (and `nn.Sequential` or scripted modules of it): a uint8 CHW tensor;
- anything else: the HWC uint8 array.

`form` says it instead: "array", "tensor" or "pil".

What counts is where a transform's class, or one of its bases, is defined; what it is composed of, too.
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


class PictureCall:
    """A transform as a callable on decoded images.

    Args:
        transform: the user's callable.
        joint: it takes the label too and returns both.
        form: what it is called with: "array", "tensor" or "pil"; None goes by where its class is defined.

    Raises:
        OptionError: it cannot be called, or not with this form.
    """

    def __init__(self, transform: Callable[..., Any], *, joint: bool = False, form: Form = None) -> None:
        self.transform = function("a transform", transform)
        self._joint, self._form = joint, form
        self._kind = kind_of(transform)
        if self._kind == "albumentations" and form not in (None, "array"):
            raise OptionError(f"form={form!r}: albumentations takes arrays; leave form out")

    def __call__(self, picture: Any, label: Any) -> tuple[Any, Any]:
        """The transformed image and label.

        Raises:
            LoadError: the transform raised an error; what it was called with is told.
        """
        given = self._formed(picture)
        with UserCall(f"transform {_name(self.transform)}", lambda: self._hint(given)):
            if self._kind == "albumentations":
                return self.transform(image=given)["image"], label
            return self.transform(given, label) if self._joint else (self.transform(given), label)

    def _formed(self, picture: Any) -> Any:
        """An image as the transform takes it; what an earlier one made of it stays as it is."""
        if not isinstance(picture, np.ndarray):
            return picture
        return as_form(picture, "tensor" if self._form is None and self._kind == "torchvision" else self._form)

    def _hint(self, given: Any) -> str:
        """What to do where a transform may have wanted another form of image."""
        if self._kind != "plain" or self._form is not None or not isinstance(given, np.ndarray):
            return ""
        return (
            f"; it was called with a {given.dtype} array of {' x '.join(map(str, given.shape))}, since its class is "
            "none of torchvision's: form='pil' or form='tensor' gives it a PIL image or a C x H x W tensor"
        )

    def __repr__(self) -> str:
        return repr(self.transform)


def as_form(image: NDArray[Any], form: Form) -> Any:
    """An H x W x 3 uint8 array in the form that somebody wants."""
    if form == "pil":
        from PIL import Image

        return Image.fromarray(image)
    if form == "tensor":
        import torch

        return torch.from_numpy(image).permute(2, 0, 1)
    return image


def check_form(transforms: Iterable[Callable[..., Any]], form: object) -> None:
    """Refuse what is no form, and transforms that need another one.

    Raises:
        OptionError: saying which would do.
    """
    choice("form", form, (*get_args(get_args(Form)[0]), None))
    names = [_pil_only(one) for one in transforms if form is None and kind_of(one) == "torchvision"]
    for name in filter(None, names):
        raise OptionError(
            f"torchvision's {name} takes PIL images, and images come as uint8 tensors here: give form='pil', or "
            "torchvision.transforms.v2.ToDtype(torch.float32, scale=True) in its place"
        )


class UserCall:
    """Around a call of a user's function: whatever it raises becomes a LoadError that says which function it was.

    So a StopIteration does not end the loop that the sample is made for. What fastdata or the machine raises passes.
    A class, since contextlib takes a RuntimeError that was raised from a StopIteration for that StopIteration.

    Args:
        what: the function, in words.
        hint: what there is to add, asked for when something was raised.
    """

    __slots__ = ("_hint", "_what")

    def __init__(self, what: str, hint: Callable[[], str] | None = None) -> None:
        self._what, self._hint = what, hint

    def __enter__(self) -> None:
        """Nothing is to be prepared."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, FastdataError):
            return
        raise_resource_error(error, self._what)
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise LoadError(f"{self._what}: {words}{self._hint() if self._hint else ''}") from error


def _name(transform: Any) -> str:
    return getattr(transform, "__qualname__", None) or type(transform).__qualname__


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
