"""fastdata: pack a folder of photos into LMDB, HDF5 or tar shards, and train PyTorch models from it at full speed.

Every public name is importable from here and loaded on first use, so `import fastdata` imports neither torch nor
OpenCV: the command starts at once, and conversion workers stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers and editors
    from fastdata.converters.convert import convert
    from fastdata.converters.report import ConvertReport
    from fastdata.converters.writers import Writer, create
    from fastdata.datasets import ImageDataset, ImageStream
    from fastdata.device import CUDAPrefetcher
    from fastdata.errors import (
        CacheError,
        ConvertError,
        CutError,
        DecodeError,
        FastdataError,
        FormatError,
        LoadError,
        OptionError,
        OutOfMemoryError,
        OutputExistsError,
        RecordError,
        ResourceError,
        TooLargeError,
        UnsupportedError,
        WorkerError,
    )
    from fastdata.formats.base import Reader
    from fastdata.formats.detect import open
    from fastdata.loader.loader import DataLoader
    from fastdata.manifest import Manifest
    from fastdata.record import Record, key_from_path, path_from_key
    from fastdata.reproducibility import seed_everything, seed_worker
    from fastdata.scaling import IMAGENET_MEAN, IMAGENET_STD
    from fastdata.transforms import (
        CenterCrop,
        Letterbox,
        RandomHorizontalFlip,
        RandomResizedCrop,
        RandomVerticalFlip,
        Resize,
    )

__version__ = "0.1.0"

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "CUDAPrefetcher",
    "CacheError",
    "CenterCrop",
    "ConvertError",
    "ConvertReport",
    "CutError",
    "DataLoader",
    "DecodeError",
    "FastdataError",
    "FormatError",
    "ImageDataset",
    "ImageStream",
    "Letterbox",
    "LoadError",
    "Manifest",
    "OptionError",
    "OutOfMemoryError",
    "OutputExistsError",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Reader",
    "Record",
    "RecordError",
    "Resize",
    "ResourceError",
    "TooLargeError",
    "UnsupportedError",
    "WorkerError",
    "Writer",
    "__version__",
    "convert",
    "create",
    "key_from_path",
    "open",
    "path_from_key",
    "seed_everything",
    "seed_worker",
]

# The module that defines each public name.
_MODULES = {
    "fastdata.converters.convert": ("convert",),
    "fastdata.converters.report": ("ConvertReport",),
    "fastdata.converters.writers": ("Writer", "create"),
    "fastdata.datasets": ("ImageDataset", "ImageStream"),
    "fastdata.device": ("CUDAPrefetcher",),
    "fastdata.errors": (
        "CacheError",
        "ConvertError",
        "CutError",
        "DecodeError",
        "FastdataError",
        "FormatError",
        "LoadError",
        "OptionError",
        "OutOfMemoryError",
        "OutputExistsError",
        "RecordError",
        "ResourceError",
        "TooLargeError",
        "UnsupportedError",
        "WorkerError",
    ),
    "fastdata.formats.detect": ("open",),
    "fastdata.formats.base": ("Reader",),
    "fastdata.loader.loader": ("DataLoader",),
    "fastdata.manifest": ("Manifest",),
    "fastdata.record": ("Record", "key_from_path", "path_from_key"),
    "fastdata.reproducibility": ("seed_everything", "seed_worker"),
    "fastdata.scaling": ("IMAGENET_MEAN", "IMAGENET_STD"),
    "fastdata.transforms": (
        "CenterCrop",
        "Letterbox",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "RandomVerticalFlip",
        "Resize",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'fastdata' has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value  # so that this function is not called for it again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
