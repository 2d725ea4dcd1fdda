"""Silence decoders: their logs, warnings and size limits are process-wide settings, which are changed during a decode.

OpenCV's logger has one level for the process; Pillow has module-wide switches and uses Python's warning filters. Both
are set for one decode and restored, so that no setting of the program is changed for good. A forked child makes new
locks, since another thread of its parent may have held them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator

import cv2

_LOG = cv2.utils.logging


class _Silence:
    """OpenCV's logger, off while at least one thread is inside."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.level = 0

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.level = _LOG.setLogLevel(_LOG.LOG_LEVEL_SILENT)  # returns the level before
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                _LOG.setLogLevel(self.level)

    def after_fork(self) -> None:
        """Only the forking thread runs in the child, and it is not inside."""
        self.lock = threading.Lock()
        if self.inside:
            self.inside = 0
            _LOG.setLogLevel(self.level)


silence = _Silence()
_pillow_lock = threading.RLock()


@contextlib.contextmanager
def pillow(*, lenient: bool) -> Iterator[None]:
    """Use Pillow without warnings and without its own size limit (`max_pixels` has been checked).

    `lenient` fills the missing pixels of cut data. One thread at a time: these switches and Python's warning filters
    belong to the whole process.
    """
    from PIL import Image, ImageFile

    with _pillow_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
        Image.MAX_IMAGE_PIXELS = None
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = kept


def _after_fork() -> None:
    global _pillow_lock
    _pillow_lock = threading.RLock()
    silence.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
