"""Writers: add records to one data set, which is written completely or not at all.

`create` returns a `Writer`, which checks records, keeps the index and moves the finished data set to its target. A sink
lays out the bytes: one small class per format, with `add`, `finish` and `abort`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from fastdata.checks import byte_count, refuse
from fastdata.converters.staging import Staging
from fastdata.converters.writers.base import Sink, SinkOptions
from fastdata.errors import ConvertError, OptionError, RecordError
from fastdata.formats import DEFAULT_SHARD_SIZE, FORMATS, format_of, load
from fastdata.formats.addresses import check_local_target, path_of
from fastdata.formats.index import IndexBuilder
from fastdata.manifest import Manifest
from fastdata.record import Record, check_record
from fastdata.signals import deferred_signals

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Writer", "create"]


def create(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    classes: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    shard_size: int | str = DEFAULT_SHARD_SIZE,
    overwrite: bool = False,
) -> Writer:
    """Write a data set record by record.

    >>> with fastdata.create("train.lmdb", classes=["cat", "dog"]) as writer:          # doctest: +SKIP
    ...     writer.write(fastdata.Record("cat/1", {"jpg": jpeg, "cls": b"0"}))

    Leaving the `with` block normally finishes the data set; leaving it by an exception discards it.

    Args:
        path: the data set; its suffix names the format (`.lmdb`, `.h5`, `.hdf5`, `.tar`).
        format: "lmdb", "hdf5" or "tar"; "tar" with a path without the suffix `.tar` gives a folder of shards.
        classes: class names by number.
        options: how the data were made, for the manifest; JSON values, no times, hosts or absolute paths.
        shard_size: the maximum size of a tar shard in bytes, a number or a text such as "256MB".
        overwrite: replace what is there; it stays until the new data set is complete.

    Raises:
        OptionError: the format is not known, or a value cannot be used.
        OutputExistsError: something is there, and not `overwrite`.
        ConvertError: the path cannot be written.
    """
    check_local_target(name := path_of("path", path))
    kind = format_of(name, format)
    most = byte_count("shard_size", shard_size)
    manifest = Manifest(kind, 0, (), _class_table(classes), options=_json_options(options))
    with deferred_signals():  # a library that is being imported may swallow what a signal handler raises
        sink = cast("Callable[[SinkOptions], Sink]", load(FORMATS[kind].sink, __package__))
    staging = Staging(name, overwrite=overwrite)
    try:
        return Writer(staging, sink(SinkOptions(staging.new, staging.target, most)), manifest)
    except BaseException:
        staging.discard()
        raise


def _class_table(classes: Sequence[str] | None) -> tuple[str, ...]:
    table = tuple(classes or ())
    distinct = len(set(table)) == len(table)
    if isinstance(classes, str) or not all(isinstance(item, str) for item in table) or not distinct:
        refuse("classes", "a list of distinct strings", classes)
    return table


def _json_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options as a reader will return them."""
    try:
        return dict(json.loads(json.dumps(dict(options or {}), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise OptionError(f"options must be JSON values: {error}") from error


class Writer:
    """Adds records to one data set; use it in a `with` block (see `create`).

    Attributes:
        bytes_out: the size of the finished data set on disk; 0 until it is finished.
    """

    def __init__(self, staging: Staging, sink: Sink, manifest: Manifest) -> None:
        self._staging, self._sink, self._manifest = staging, sink, manifest
        self._builder = IndexBuilder()
        self._open = True
        self._process = os.getpid()
        self.bytes_out = 0

    def write(self, record: Record) -> None:
        """Append one record.

        Raises:
            RecordError: some format cannot hold its key or a field, the key was written before, or its class number is
                not in the class table. It is not written, but others can be.
            ConvertError: the disk is full or failed. The data set is discarded.
        """
        if not self._open:
            raise ValueError(f"{self._staging.target}: this writer is closed")
        check_record(record)
        fields = {name: blob if type(blob) is bytes else bytes(blob) for name, blob in record.fields.items()}
        record = Record(record.key, fields, record.path)  # the length of a view need not be its size in bytes
        self._builder.check_new(record)
        label, classes = record.label, self._manifest.classes
        if classes and not -1 <= label < len(classes):
            raise RecordError(
                f"record {record.key!r}: class number {label} is not in the table of {len(classes)} classes"
            )
        try:
            with self._disk_errors():
                locations = self._sink.add(record)
            self._builder.add(record, locations)
        except BaseException:  # the files may hold half a record, so no other can follow
            self.discard()
            raise

    def close(self) -> None:
        """Finish the data set and move it to its target.

        Raises:
            ConvertError: the disk is full or failed; the data set is discarded.
        """
        if not self._open:
            return
        self._open = False
        try:
            with self._disk_errors():
                self._sink.finish(self._builder, self._manifest)
                self.bytes_out = _size(self._staging.new)
                self._staging.commit()
        finally:
            self._release()

    def discard(self) -> None:
        """Discard what was written; the destination does not change."""
        self._open = False
        self._release()

    def _release(self) -> None:
        if os.getpid() != self._process:
            return  # a forked child left the block; the files are its parent's
        try:
            with contextlib.suppress(OSError):  # closing flushes, which fails again if the disk is full
                self._sink.abort()
        finally:
            self._staging.discard()

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn the errors of a full or failing disk into a ConvertError, whichever library raised them."""
        try:
            yield
        except ConvertError:  # OutputExistsError is an OSError too, and has a message already
            raise
        except OSError as error:
            target, records = self._staging.target, len(self._builder)
            kept = "The existing data set was not changed" if os.path.lexists(target) else "Nothing was written"
            grown = f"{_size_so_far(self._staging.new):,} bytes, {records:,} records"
            raise ConvertError(
                f"cannot write {target!r}: {error.strerror or error}{_cure(error.errno)}. {kept} (the new one: {grown})"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            warnings.warn(
                f"a writer of {self._staging.target!r} was dropped without close(): nothing is written; use `with`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
            self.discard()


def _cure(number: int | None) -> str:
    """What helps against this error of the system; "" if that is not known."""
    if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ""
    limit = ""
    if number == errno.EFBIG and (most := _longest_file()) is not None:
        limit = f", or raise the limit of {most:,} bytes a file (ulimit -f)"
    return f"; free some space, or name a path on another disk{limit}"


def _longest_file() -> int | None:
    """The longest file that this process may write; None if nothing limits it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _size_so_far(path: str) -> int:
    try:
        return _size(path)
    except OSError:  # nothing was written yet
        return 0


def _size(path: str) -> int:
    if not os.path.isdir(path):
        return os.stat(path).st_size
    return sum(os.stat(os.path.join(path, name)).st_size for name in os.listdir(path))
