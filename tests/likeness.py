"""How alike two images are, and what a decoded file may differ from the image that it was made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Mean absolute difference in levels that a lossy kind may cost on the photos drawn here.
TOLERANCE = {"jpg": 6.0, "webp": 6.0, "avif": 6.0, "jp2": 6.0}


def distance(one: NDArray[Any], other: NDArray[Any]) -> int:
    """The largest difference of two images of one size."""
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other).max())


def assert_alike(got: NDArray[np.uint8], rgb: NDArray[np.uint8], name: str) -> None:
    """What decoding a file of this name may differ by: rounding, and what a lossy kind costs on average."""
    assert got.shape == rgb.shape
    assert got.dtype == np.uint8
    mean = TOLERANCE.get("webp" if name.startswith("lossy") else name.rpartition(".")[2])
    exact = mean is None or (name.endswith(".webp") and not name.startswith("lossy"))
    assert distance(got, rgb) <= 1 if exact else np.abs(got.astype(int) - rgb).mean() <= (mean or 0)


def assert_one_line(error: Exception) -> None:
    """What is reported of a file must fit into one line of a report."""
    assert str(error)
    assert "\n" not in str(error)
