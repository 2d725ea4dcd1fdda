"""Failures: what keeps a batch from being made, and the errors for users, which name the records."""

from __future__ import annotations

from collections.abc import Sequence

from fastdata.errors import FormatError, OptionError, ResourceError, WorkerError
from fastdata.formats.base import Reader, record_name
from fastdata.formats.locations import blob_of
from fastdata.loader.sample_log import Failure

# Keys of samples in an error.
_SHOWN = 8
# Failures that no other sample mends: wrong options, a machine that has run out of something, what would end a worker.
_NO_DAMAGE = (OptionError, ResourceError, WorkerError)


class WorkerLost(Exception):
    """A worker ended, or is late. `named` makes the error for users.

    Args:
        what: what happened.
        records: the numbers of the records that it had.
        advice: why that may be, and what to do.
    """

    def __init__(self, what: str, records: Sequence[int], advice: str) -> None:
        super().__init__(what)
        self.what, self.records, self.advice = what, records, advice

    def named(self, reader: Reader) -> WorkerError:
        """The error that names the records."""
        names = ", ".join(repr(reader.keys[index]) for index in self.records[:_SHOWN])
        more = f" and {len(self.records) - _SHOWN} more" if len(self.records) > _SHOWN else ""
        count = "1 sample" if len(self.records) == 1 else f"{len(self.records)} samples"
        had = f" with {count} under way ({names}{more})" if names else ""
        return WorkerError(f"{reader.path}: {self.what}{had}; {self.advice}")


def is_damage(failure: Failure) -> bool:
    """Whether another record in its place may do."""
    return not issubclass(failure.kind, _NO_DAMAGE)


def key_and_reason(reader: Reader, failure: Failure) -> tuple[str, str]:
    """The key of the record that failed, and why it did."""
    reason = failure.reason
    if not reason:  # its location is not known
        try:
            if failure.field is None:
                reader.image(failure.index)
            else:
                blob_of(reader, failure.index, failure.field, verify=False)
        except FormatError as error:
            reason = str(error)
    return reader.keys[failure.index], reason


def error_of(reader: Reader, failure: Failure) -> Exception:
    """The error to raise for a sample that could not be made."""
    name, reason = record_name(reader, failure.index), key_and_reason(reader, failure)[1]
    stack = f"\n\nThe stack where it was made:\n{failure.stack}" if failure.stack else ""
    return failure.kind(f"{reason if reason.startswith(name) else f'{name}: {reason}'}{stack}")
