"""Data sets for torch: `ImageDataset` (map-style, like torchvision's ImageFolder) and `ImageStream` (iterable)."""

from fastdata.datasets.images import ImageDataset
from fastdata.datasets.stream import ImageStream

__all__ = ["ImageDataset", "ImageStream"]
