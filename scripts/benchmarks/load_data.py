"""What the sides of `scripts/bench load` read: the same images in every form, made when a side needs it, and kept.

pixels/      every image once, lossless: what all encodings below are made of, by every peer's own writer too
files/       JPEG files in class folders, laid N times by hard links (shorter side 256: plain, quality 90; else the
             originals as they are)
originals/   the given files, laid likewise
lmdb h5 tar  records that `fastdata convert` makes of `pixels/`, N times, quality 90
raw          the same with `--encode raw`
ffcv-jpg ffcv-raw   FFCV's files, which its side writes from `pixels/`
shards       tar shards of `files/`, for webdataset
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import images

import fastdata
from fastdata.codec.decode import decode
from fastdata.codec.encode import encode

_QUALITY = 90
_SHORTER = 256


Make = Callable[["DataSets", str], None]


def _whole_or_not(make: Make) -> Make:
    """Build a folder beside its place, so that what a broken run leaves is not taken for a data set."""

    def made(self: DataSets, path: str) -> None:
        beside = f"{path}.new"
        shutil.rmtree(beside, ignore_errors=True)
        os.makedirs(beside)
        make(self, beside)
        os.rename(beside, path)

    return made


class DataSets:
    """Makes and finds them below one folder, whose name says what they are made of."""

    def __init__(self, place: str, photos: str, size: str, samples: int, workers: int) -> None:
        self._sources = images.listed(photos)
        self._size, self._workers = size, workers
        self.times = -(-samples // len(self._sources))
        self.count = self.times * len(self._sources)
        told = "\n".join(f"{os.path.relpath(path, photos)} {os.path.getsize(path)}" for path in self._sources)
        digest = hashlib.sha256(told.encode()).hexdigest()[:8]
        self.root = os.path.join(place, f"load-{digest}-{size}-{self.count}")
        os.makedirs(self.root, exist_ok=True)

    def path(self, name: str) -> str:
        """Where the data set of this name is; it is made if it is not there. FFCV's are made by its side."""
        suffix = {"lmdb": ".lmdb", "h5": ".h5", "raw": "-raw.lmdb"}.get(name)
        path = os.path.join(self.root, name if suffix is None else f"records{suffix}")
        make = getattr(self, f"_make_{name}", None)
        if make is not None and not os.path.exists(path):
            make(path)
        return path

    def shards(self) -> list[str]:
        folder = self.path("shards")
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".tar"))

    @_whole_or_not
    def _make_pixels(self, target: str) -> None:
        for number, source in enumerate(self._sources):
            with open(source, "rb") as file:
                image = decode(file.read())
            height, width = image.shape[:2]
            if self._size != "original" and min(width, height) > _SHORTER:
                share = _SHORTER / min(width, height)
                image = fastdata.Resize((round(height * share), round(width * share)))(image)
            _write(os.path.join(target, f"{number:06d}.png"), encode(image, "png"))

    @_whole_or_not
    def _make_files(self, target: str) -> None:
        if self._size == "original":
            images.lay_files(self._sources, self.times, target)
            return
        pixels, plain = self.path("pixels"), os.path.join(target, "once")
        os.makedirs(plain)
        for name in sorted(os.listdir(pixels)):
            # OpenCV's encoder: `encode` would add the restart markers that only fastdata uses.
            image = cv2.imread(os.path.join(pixels, name), cv2.IMREAD_COLOR_BGR)
            done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
            assert done
            _write(os.path.join(plain, f"{os.path.splitext(name)[0]}.jpg"), data.tobytes())
        images.lay(plain, self.times, target)
        shutil.rmtree(plain)

    @_whole_or_not
    def _make_originals(self, target: str) -> None:
        images.lay_files(self._sources, self.times, target)

    def _make_lmdb(self, target: str) -> None:
        self._repeat(self._converted("jpeg"), target, "lmdb")

    def _make_h5(self, target: str) -> None:
        self._repeat(self._converted("jpeg"), target, "hdf5")

    def _make_tar(self, target: str) -> None:
        self._repeat(self._converted("jpeg"), target, "tar")

    def _make_raw(self, target: str) -> None:
        self._repeat(self._converted("raw"), target, "lmdb")

    def _make_shards(self, target: str) -> None:
        with fastdata.open(self.path("files")) as reader:
            total = sum(reader.size(row) for row in range(len(reader)))
            # Eight shards for each worker, so that none waits long for another one's last.
            size = max(total // (8 * self._workers), 1_000_000)
            _copy((reader[row] for row in range(len(reader))), target, "tar", shard_size=size)

    def _converted(self, encoding: str) -> str:
        """What `fastdata convert` makes of the pixels, once."""
        path = os.path.join(self.root, f"once-{encoding}.lmdb")
        if not os.path.exists(path):
            options: dict[str, Any] = {} if encoding == "raw" else {"quality": _QUALITY}
            fastdata.convert(self.path("pixels"), path, encode=encoding, workers=self._workers, **options)
        return path

    def _repeat(self, once: str, target: str, format: str) -> None:
        with fastdata.open(once) as reader:
            records = (
                fastdata.Record(f"{time:04d}/{record.key}", {**record.fields, "cls": b"%d" % time})
                for time in range(self.times)
                for record in (reader[row] for row in range(len(reader)))
            )
            _copy(records, target, format, classes=[f"{time:04d}" for time in range(self.times)])


def _copy(records: Iterator[fastdata.Record], target: str, format: str, **options: object) -> None:
    with fastdata.create(target, format=format, **options) as writer:  # type: ignore[arg-type]
        for record in records:
            writer.write(record)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
