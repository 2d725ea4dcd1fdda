"""Geometric transforms that are planned before an image is decoded, so that only the pixels they need are decoded.

`geometry` has the transforms, `plan` the value that they compute, `render` makes the pixels, `targets` transforms masks
and boxes, `pipeline` is what the loader and the data sets use. Importing this package imports neither torch nor OpenCV.
"""

from fastdata.transforms.geometry import (
    CenterCrop,
    Letterbox,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from fastdata.transforms.pipeline import Pipeline
from fastdata.transforms.plan import Plan
from fastdata.transforms.targets import apply_to_boxes, apply_to_mask

__all__ = [
    "CenterCrop",
    "Letterbox",
    "Pipeline",
    "Plan",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "apply_to_boxes",
    "apply_to_mask",
]
