"""Transforms that know their source box: geometry is planned first, so that only what it needs is decoded.

`geometry` holds the transforms, `plan` what they make, `render` the pixels, `targets` masks and boxes, `pipeline` what
the loader and the data sets work with. Importing this package imports neither torch nor OpenCV.
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
