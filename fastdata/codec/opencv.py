"""OpenCV's decoder without its log: what it writes is returned, not printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decoder_log import logged
from fastdata.codec.quiet import silence

if TYPE_CHECKING:
    from fastdata.codec.info import Data

COLOR = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def imdecode(data: Data, flags: int) -> tuple[NDArray[Any] | None, str]:
    """Decode with OpenCV: the pixels, None if it returns none or raises; and what it wrote.

    Raises:
        MemoryError: there is not enough memory.
    """

    def decoded() -> NDArray[Any] | None:
        try:
            with silence:
                return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        except cv2.error as error:
            if error.code == cv2.Error.StsNoMem:
                raise MemoryError("OpenCV ran out of memory") from error
            return None

    return logged(decoded)
