"""SampleReader: a reader's records as samples, one at a time, in the process that asks for them.

In: a reader, and how samples are made. Out: samples whose arrays belong to the caller. Whatever cannot be made is an
error that names the data set and the key.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence

import cv2

from fastdata.datasets.remarks import Remarks
from fastdata.errors import DecodeError, FastdataError, raise_resource_error
from fastdata.formats.base import Reader, raise_named, record_name
from fastdata.formats.files import Scratch
from fastdata.formats.locations import blob_of, image_of
from fastdata.sample import Sample, SampleDecoder
from fastdata.world import worker_info


class SampleReader:
    """Makes samples of the records of a reader.

    Attributes:
        reader: the reader.
        remarks: what decoders said of images that were made all the same, in this process, once a record.
    """

    def __init__(self, reader: Reader, *, verify: bool) -> None:
        self.reader, self._verify = reader, verify
        self._scratch = Scratch()
        self._process = 0
        self.remarks = Remarks()

    def sample(self, decoder: SampleDecoder, index: int, numbers: Sequence[float], data: bytes | None = None) -> Sample:
        """The sample of record `index`.

        Args:
            decoder: how it is made.
            index: the record; negative numbers count from the end.
            numbers: what the geometric transforms draw.
            data: the bytes of its image, where they were read before.

        Raises:
            FastdataError: naming the data set and the key: the record is damaged, its image cannot be decoded, a
                transform raised an error, the machine ran out of something.
        """
        if self._process != os.getpid():
            self._settle()
        try:
            sample = self._read(decoder, index, numbers, data)
            decoder.transform(sample)
        except FastdataError as error:
            name = record_name(self.reader, index)
            raise (error if str(error).startswith(name) else type(error)(f"{name}: {error}")) from error
        return sample

    def _read(self, decoder: SampleDecoder, index: int, numbers: Sequence[float], data: bytes | None) -> Sample:
        reader, selection, notes = self.reader, decoder.selection, list[str]()
        sample = Sample(index + len(reader) if index < 0 else index, label=int(reader.labels[index]))
        plan = None
        if "key" in selection.names:
            sample.key = reader.keys[index]
        if decoder.needs_image or decoder.needs_plan:
            blob = self.encoded(index) if data is None else data
            try:
                image = decoder.open(blob)
                plan = decoder.plan(image, numbers) if decoder.needs_plan else None
                sample.image = decoder.render(image, numbers, notes) if decoder.needs_image else None
            except DecodeError as error:
                raise type(error)(f"{error}; `fastdata verify` names all that are damaged") from error
            except Exception as error:
                raise_resource_error(error, record_name(reader, index))
                raise
            if notes and (remark := (reader.keys[index], "; ".join(notes))) not in self.remarks:
                self.remarks.add(*remark)
        for stored in selection.stored:
            sample.fields[stored.name] = decoder.value(stored, self._blob(index, stored.record_name), plan)
        return sample

    def encoded(self, index: int) -> bytes | memoryview:
        """The bytes of record `index`'s image, right until this thread asks for the next.

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

    def _blob(self, index: int, name: str) -> bytes | None:
        try:
            return blob_of(self.reader, index, name, verify=self._verify)
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

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_process": 0}
