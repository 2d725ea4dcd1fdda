"""Warnings about class folders that look like parts of a data set, or like images and their masks.

The images are read all the same: a folder may be a class, whatever its name is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PARTS = {
    "train": ("train", "training", "trn", "traina", "trainb"),
    "val": ("val", "valid", "validation", "dev", "vala", "valb"),
    "test": ("test", "testing", "eval", "evaluation", "holdout", "testa", "testb"),
}
_SPLITS = {name: part for part, names in _PARTS.items() for name in names}
# What may stand beside the name of a part: `test_set_images`, `train2017`.
_FILLERS = frozenset(("set", "split", "data", "images", "image", "imgs", "img"))
_IMAGES = frozenset((
    "images", "image", "imgs", "img", "photos", "photo", "pictures", "jpegimages", "jpgimages", "pngimages", "rgb",
    "input", "inputs", "leftimgbit",
))  # fmt: skip
_MASKS = frozenset((
    "masks", "mask", "segmentationclass", "segmentationclassaug", "segmentationobject", "segmentation", "segmentations",
    "seg", "segs", "labels", "label", "labelids", "annotations", "annotation", "anns", "gt", "gts", "gtfine",
    "gtcoarse", "groundtruth", "groundtruths", "target", "targets", "trimaps", "trimap", "mattes", "depth",
))  # fmt: skip
_SHOWN = 6


def doubts(names: Sequence[str], *, nested: bool) -> list[str]:
    """The warnings about class folders with these names.

    Args:
        names: the names of the classes.
        nested: whether images lie in folders below them.
    """
    words = {name: re.findall("[a-z]+", name.lower()) for name in names}
    cores = {name: "".join(word for word in each if word not in _SPLITS) for name, each in words.items()}
    masks = [name for name in names if cores[name] in _MASKS]
    parts = {name: part for name in names if name not in masks and (part := _part(words[name]))}
    images = [name for name in names if name in parts or cores[name] in _IMAGES]
    found = []
    if masks and images:
        found.append(
            f"{_named(images + masks)} look like images and their masks or labels, not like classes: masks and labels "
            f"are not read as such, and JPEG changes their values; use {_named(images)} alone"
        )
    if len(set(parts.values())) > 1:
        found.append(
            f"{_named(list(parts))} look like parts of a data set, not like classes, and are read as one data set; "
            "use each folder by itself"
        )
    elif len(names) == len(parts) == 1 and nested:
        found.append(
            f"{_named(names)} looks like a part of a data set, not like its only class; use that folder itself"
        )
    return found


def _part(words: Sequence[str]) -> str:
    """The part of a data set ("train", "val", "test") that a folder's name states, "" if none."""
    parts = {_SPLITS[word] for word in words if word in _SPLITS}
    only = all(word in _SPLITS or word in _FILLERS for word in words)
    return parts.pop() if only and len(parts) == 1 else ""


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ..."
