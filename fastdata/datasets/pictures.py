"""Pictures: a reader's records as decoded arrays, by the rules that the data set was made with.

In: a reader and an index. Out: a contiguous, writable HWC uint8 RGB array that belongs to the caller. Whatever cannot
be decoded is an error that names the data set and the key.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fastdata.codec.decode import Rules
from fastdata.datasets.remarks import Remarks
from fastdata.errors import DecodeError, FastdataError, raise_resource_error
from fastdata.formats.base import Reader, allowed_pixels, raise_named, record_name
from fastdata.formats.files import Scratch
from fastdata.formats.locations import image_of
from fastdata.size import Size
from fastdata.transforms.plan import Plan
from fastdata.transforms.render import render
from fastdata.world import worker_info


def named(reader: Reader, index: int, error: FastdataError) -> FastdataError:
    """An error with data set and key in front, where it does not have them yet."""
    name = record_name(reader, index)
    return error if str(error).startswith(name) else type(error)(f"{name}: {error}")


class Pictures:
    """Decodes the pictures of a reader.

    Cut pictures are errors unless the data set was made with `keep_damaged`; alpha is composited as it was told then
    (`alpha`, white by default).

    Attributes:
        reader: the reader.
        remarks: what decoders said of images that were made all the same, in this process, once a record.
    """

    def __init__(self, reader: Reader, *, verify: bool = True, max_pixels: int | None = None) -> None:
        self.reader, self._verify = reader, verify
        self._rules = Rules.of(reader.manifest.options, allowed_pixels(reader, max_pixels))
        self._scratch = Scratch()
        self._process = 0
        self.remarks = Remarks()

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        return self.render(index, Plan.whole)

    def render(
        self, index: int, plan_of: Callable[[Size], Plan], data: bytes | None = None, *, exact: bool = False
    ) -> NDArray[np.uint8]:
        """What a plan wants of record `index`'s picture; `data` are its bytes where they were read before.

        Raises:
            DecodeError: naming the data set and the key.
            ResourceError: likewise; memory ran out.
        """
        if self._process != os.getpid():
            self._settle()
        blob, notes = self.encoded(index) if data is None else data, list[str]()
        try:
            pixels = render(blob, plan_of, exact=exact, rules=self._rules, notes=notes)
        except DecodeError as error:
            name = record_name(self.reader, index)
            raise type(error)(f"{name}: {error}; `fastdata verify` names all that are damaged") from error
        except Exception as error:
            raise_resource_error(error, record_name(self.reader, index))
            raise
        if notes and (remark := (self.reader.keys[index], "; ".join(notes))) not in self.remarks:
            self.remarks.add(*remark)
        return pixels

    def encoded(self, index: int) -> bytes | memoryview:
        """The bytes of record `index`'s picture, right until this thread asks for the next.

        Raises:
            FormatError: it cannot be read, or has changed.
            ResourceError: the machine ran out of descriptors or memory, or its disk failed.
            LoadError: a reader of the user's own raised something else.
        """
        try:
            return image_of(self.reader, index, self._scratch, verify=self._verify)
        except Exception as error:
            raise_named(self.reader, index, error)
            raise

    def _settle(self) -> None:
        """What a DataLoader worker needs once.

        OpenCV works alone there: its threads times the workers would only wait for each other. And the garbage
        collector passes over what came from the parent: looking at it all would copy it, 40 MB in each forked worker.
        """
        if worker_info() is not None:
            cv2.setNumThreads(0)
            gc.freeze()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_process": 0}
