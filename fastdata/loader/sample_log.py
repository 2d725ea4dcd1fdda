"""SampleLog: what goes wrong with the samples of a request, and what there is to say of those that are made."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastdata.errors import (
    FastdataError,
    FormatError,
    LoadError,
    ResourceError,
    WorkerError,
    resource_error,
    resource_words,
)
from fastdata.formats.locations import COLUMNS, Locations
from fastdata.loader.layout import Layout

# A row for a sample begins with the location of its image, and how many times its record has come before in the epoch.
# (file, offset, size, crc) of each stored field follow, then the label where `target_transform` is called with it.
OCCURRENCE = COLUMNS
IMAGE_COLUMNS = COLUMNS + 1
FIELD_COLUMNS = COLUMNS - 1
# What there is to say about a sample that was made: its row in the batch, its record, the message.
Remark = tuple[int, int, str]
# What samples hold beside their images, by its name, then in the order of the samples; None for one that failed.
Values = dict[str, list[Any]]
# What is kept of a reason: a whole batch may fail, and each failure passes through a pipe.
_LONGEST_REASON = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be made: its row in the batch, its record, what went wrong, and the stack (of the first).

    The reason is empty where the location of the record's image, or of `field`, is not known: the reader knows why.
    """

    row: int
    index: int
    reason: str
    stack: str
    kind: type[Exception]
    field: str | None = None


class NotLocated(FormatError):
    """The location of a record's image, or of a field, is not known.

    Args:
        field: its name in the record; None for the image.
    """

    def __init__(self, field: str | None) -> None:
        super().__init__()
        self.field = field


class Made(NamedTuple):
    """What came of a request, but for pixels in the buffer of a batch.

    Attributes:
        failures: what went wrong, by row.
        remarks: what decoders said of samples that were made.
        samples: images for a `collate_fn`; None for one that failed.
        layout: of the images, where that was asked for.
        values: what the samples hold beside their images.
    """

    failures: list[Failure]
    remarks: list[Remark]
    samples: list[Any] | None
    layout: Layout | None
    values: Values


class Wanted(NamedTuple):
    """A sample of a request: its number there, the location of its image with the occurrence, its row in the batch."""

    number: int
    location: list[int]
    row: int


def wanted_samples(locations: Locations, rows: Sequence[int]) -> list[Wanted]:
    """The samples of a request. `rows`: where they belong in the batch."""
    images = locations[:, :IMAGE_COLUMNS].tolist()
    return [Wanted(number, *pair) for number, pair in enumerate(zip(images, rows, strict=True))]


class SampleLog:
    """What goes wrong with the samples of a request, and what there is to say of those that are made.

    Args:
        skip: samples that fail will be replaced, so that the others are made, too.
        in_worker: what is no Exception is a failure of its sample.

    Attributes:
        failures: of samples that could not be made.
        ended: no more samples need to be made: the batch will not be handed out.
    """

    def __init__(self, *, skip: bool, in_worker: bool) -> None:
        self.failures: list[Failure] = []
        self.ended = False
        self._remarks: list[Remark] = []
        self._skip, self._in_worker = skip, in_worker

    def failed(self, one: Wanted, error: BaseException) -> bool:
        """Note why a sample could not be made, while its error is handled; whether to make no more of them.

        Raises:
            BaseException: `error` itself, where it is no failure of the sample.
        """
        index = one.location[0]
        stack = "" if self._skip and self.failures else traceback.format_exc()
        if isinstance(error, Exception):
            failure = _failure(one.row, index, error, stack)
            self.ended = self.ended or not self._skip or issubclass(failure.kind, ResourceError)
        elif self._in_worker:
            reason = f"a transform raised {error!r}; the loader can be iterated again"
            failure = Failure(one.row, index, reason, stack, WorkerError)
            self.ended = True
        else:
            raise error
        self.failures.append(failure)
        return self.ended

    def remark(self, one: Wanted, notes: list[str]) -> None:
        """Note what decoders said of a sample."""
        if notes:
            self._remarks.append((one.row, one.location[0], "; ".join(dict.fromkeys(notes))))

    def made(
        self, *, samples: list[Any] | None = None, layout: Layout | None = None, values: Values | None = None
    ) -> Made:
        """What came of the request. Of samples that failed there are no remarks."""
        failures, remarks = sorted(self.failures, key=lambda failure: failure.row), self._remarks
        if failures:
            failed = {failure.row for failure in failures}
            remarks = [remark for remark in remarks if remark[0] not in failed]
        return Made(failures, remarks, samples, layout, values or {})


def _failure(row: int, index: int, error: Exception, stack: str) -> Failure:
    machine = resource_error(error)
    if machine is not None:  # no damage, so that it is not skipped
        return Failure(row, index, resource_words(error)[:_LONGEST_REASON], stack, machine)
    if isinstance(error, NotLocated):
        return Failure(row, index, "", stack, FormatError, error.field)
    ours = type(error).__module__ == FastdataError.__module__  # those of others may take anything
    reason = str(error) if ours else f"{type(error).__name__}: {error}"
    return Failure(row, index, reason[:_LONGEST_REASON], stack, type(error) if ours else LoadError)
