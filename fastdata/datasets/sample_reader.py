"""SampleReader: makes samples of a reader's records, one at a time, in the calling process.

In: a reader, and how samples are made. Out: samples whose arrays belong to the caller. A sample that cannot be made
raises an error that names the data set and the key.
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
        remarks: what decoders reported on images that they could decode, in this process, once per record.
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
            numbers: the random numbers of the geometric transforms.
            data: the bytes of its image, if they were read before.

        Raises:
            FastdataError: the record is damaged, its image cannot be decoded, a transform raised an error, or the
                machine ran out of a resource. It names the data set and the key.
        """
        if self._process != os.getpid():
            self._set_up_process()
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
        """The bytes of record `index`'s image, valid until this thread requests the next.

        Raises:
            FormatError: it cannot be read, or has changed.
            ResourceError: the machine ran out of descriptors or memory, or its disk failed.
            LoadError: a reader of the user's own raised another error.
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

    def _set_up_process(self) -> None:
        """Set a DataLoader's worker up, once.

        OpenCV uses one thread there, because its threads times the workers would only wait for each other. The garbage
        collector ignores the objects of the parent: to visit them would copy them, 40 MB in each forked worker.
        """
        if worker_info() is not None:
            cv2.setNumThreads(0)
            gc.freeze()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_process": 0}
