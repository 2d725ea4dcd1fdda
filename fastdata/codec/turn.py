"""Turning a stored image upright, by EXIF's eight orientations."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray


def upright(rgb: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn a stored image upright: a new contiguous array, or `rgb` itself if it is upright."""
    if orientation == 1:
        return rgb
    if orientation in (5, 7):  # mirrored along a diagonal: OpenCV's transpose, half a turn more for 7
        flipped = cv2.transpose(rgb)
        return _array(flipped if orientation == 5 else cv2.rotate(flipped, cv2.ROTATE_180))
    if orientation in (2, 4):
        return _array(cv2.flip(rgb, 1 if orientation == 2 else 0))
    quarter = {3: cv2.ROTATE_180, 6: cv2.ROTATE_90_CLOCKWISE, 8: cv2.ROTATE_90_COUNTERCLOCKWISE}
    return _array(cv2.rotate(rgb, quarter[orientation]))


def _array(result: object) -> NDArray[np.uint8]:
    return np.asarray(result, np.uint8)
