"""Decoding without a word: what decoders would log, warn or refuse by process-wide settings stays inside.

OpenCV's logger has one level for the process and Pillow has module-wide switches and Python's warning filters. Both are
set for the moment of one decode and put back, so that nobody else's setting is changed for good. The locks are made
anew in forked children, whose parent may have forked while another thread held them.
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
                self.level = _LOG.setLogLevel(_LOG.LOG_LEVEL_SILENT)  # gives back the level before
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                _LOG.setLogLevel(self.level)

    def after_fork(self) -> None:
        """In the child only the forking thread lives, and it is not inside."""
        self.lock = threading.Lock()
        if self.inside:
            self.inside = 0
            _LOG.setLogLevel(self.level)


silence = _Silence()
_pillow_lock = threading.RLock()


@contextlib.contextmanager
def pillow(*, lenient: bool) -> Iterator[None]:
    """Pillow without warnings and without its own size limit (ours has been held before); lenient with cut data.

    One thread at a time: these switches and Python's warning filters belong to the whole process.
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
