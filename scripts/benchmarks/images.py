"""The images that are measured: a folder that is given, or photo-like ones drawn here, laid N times."""

from __future__ import annotations

import os
import shutil

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec.sniff import IMAGE_SUFFIXES

# Mean size of the photos of ImageNet; the drawn ones vary around it as those do.
_WIDTH, _HEIGHT = 470, 393


def folder(given: str | None, drawn: int, scratch: str) -> str:
    """The folder of the photos: the given one, or one with `drawn` images in `scratch`."""
    if given:
        return given
    target = os.path.join(scratch, "drawn")
    os.makedirs(target)
    for number in range(drawn):
        ok, data = cv2.imencode(".jpg", _photo(number), [cv2.IMWRITE_JPEG_QUALITY, 92])
        assert ok
        with open(os.path.join(target, f"{number:05d}.jpg"), "wb") as file:
            file.write(data.tobytes())
    return target


def listed(photos: str) -> list[str]:
    """The paths of the images below a folder, in order."""
    files = sorted(
        os.path.join(parent, name) for parent, _, names in os.walk(photos) for name in names if is_image(name)
    )
    if not files:
        raise SystemExit(f"{photos}: no images here; give a folder of photos with --photos")
    return files


def lay(photos: str, times: int, target: str) -> int:
    """Lay the photos `times` times into class folders of `target` (hard links where they work); how many files."""
    return lay_files(listed(photos), times, target)


def lay_files(files: list[str], times: int, target: str) -> int:
    """The same with the paths of the photos."""
    for time in range(times):
        place = os.path.join(target, f"{time:04d}")
        os.makedirs(place)
        for number, file in enumerate(files):
            _link(file, os.path.join(place, f"{number:06d}{os.path.splitext(file)[1]}"))
    return len(files) * times


def is_image(name: str) -> bool:
    """Whether a file is laid: what lies beside the photos (a list of sources, say) is not."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def read_all(root: str) -> int:
    """Read every file once, so that all of them are in the page cache; the bytes read."""
    total = 0
    for parent, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                total += len(file.read())
    return total


def _link(source: str, target: str) -> None:
    try:
        os.link(os.path.realpath(source), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _photo(seed: int) -> NDArray[np.uint8]:
    """Soft shapes, texture and noise, so that the JPEG is about as large as a photo's."""
    random = np.random.default_rng(seed)
    scale = random.uniform(0.7, 1.3)
    width, height = int(_WIDTH * scale), int(_HEIGHT * scale)
    image = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((4, 90.0), (16, 40.0), (64, 25.0), (160, 18.0)):
        coarse = random.uniform(-1, 1, (cells, cells, 3)).astype(np.float32)
        image += weight * cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    image += random.normal(128, 5, (height, width, 1)).astype(np.float32)
    return np.clip(image, 0, 255).astype(np.uint8)
