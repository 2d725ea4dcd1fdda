"""Writes an LMDB folder (layout: `fastdata.formats.lmdb`)."""

from __future__ import annotations

import errno
import mmap
import os
from typing import Any

import lmdb
import numpy as np

from fastdata.converters.writers.base import SinkOptions, finished, write_synced
from fastdata.errors import ConvertError, FormatError
from fastdata.formats.files import CheckedFile
from fastdata.formats.index import INDEX_NAME, IndexBuilder, pack
from fastdata.formats.lmdb import DATA_NAME, meta_hash, rest_hash
from fastdata.formats.lmdb_pages import HEAD
from fastdata.manifest import MANIFEST_NAME, DataFile, Manifest
from fastdata.record import Record

# Commit after this many bytes or entries: commits are rare enough to cost little, and a batch fits into memory.
_BATCH_BYTES = 32 << 20
_BATCH_ENTRIES = 4096
_PAGE = mmap.PAGESIZE  # LMDB uses the system's page size
# An entry can change one page on each level of the tree and split it: 2 pages on 8 levels are more than any tree of
# 4 kB pages needs (8 levels hold 10^13 entries). Unused room in the map is never written to the file.
_TREE_PAGES = 16


class LmdbSink:
    """Commits records in batches, and opens the environment anew for each.

    The map size is set to the used size plus an upper bound of the batch, so the map never fills up, the user need not
    choose a size, and the bytes of the file depend on the records alone.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._folder = options.new
        os.mkdir(self._folder)
        with open(os.path.join(self._folder, INDEX_NAME), "xb"):
            pass  # marks the folder as unfinished until the manifest is there
        self._pending: list[tuple[bytes, bytes]] = []
        self._bytes = 0

    def add(self, record: Record) -> list[tuple[int, int]]:
        for name, blob in record.fields.items():
            self._pending.append((f"{record.key}.{name}".encode(), bytes(blob)))
            self._bytes += len(blob)
        if self._bytes >= _BATCH_BYTES or len(self._pending) >= _BATCH_ENTRIES:
            self._commit()
        return [(0, 0)] * len(record.fields)  # the offsets are known when all records are written

    def _commit(self) -> None:
        data = os.path.join(self._folder, DATA_NAME)
        used = os.stat(data).st_size if os.path.exists(data) else 2 * _PAGE
        pages = sum(-(-(len(value) + HEAD) // _PAGE) + _TREE_PAGES for _, value in self._pending)
        room = used + (pages + 64) * _PAGE
        with _Environment(self._folder, map_size=room) as environment, environment.begin(write=True) as transaction:
            for key, value in self._pending:
                transaction.put(key, value)
        self._pending, self._bytes = [], 0

    def finish(self, builder: IndexBuilder, manifest: Manifest) -> None:
        self._commit()
        self._fill_offsets(builder)
        data = os.path.join(self._folder, DATA_NAME)
        with open(data, "r+b") as file:
            os.fsync(file.fileno())
        columns = builder.columns()
        with CheckedFile(data) as written:
            rest = rest_hash(written, np.asarray(builder.offset), np.asarray(builder.size))
        index = write_synced(os.path.join(self._folder, INDEX_NAME), pack(columns))
        files = [DataFile(DATA_NAME, written.length, meta_hash(data), rest), DataFile(INDEX_NAME, index)]
        done = finished(manifest, builder, columns, files)
        write_synced(os.path.join(self._folder, MANIFEST_NAME), [done.to_json()])

    def _fill_offsets(self, builder: IndexBuilder) -> None:
        data = os.path.join(self._folder, DATA_NAME)
        with (
            _Environment(self._folder, readonly=True) as environment,
            environment.begin(buffers=True) as transaction,
            CheckedFile(data) as file,
        ):
            offsets = ValueOffsets(environment.stat()["psize"])
            for blob, name in builder.names():
                value = transaction.get(name)
                offset = offsets.offset(value)
                if file.read(offset, min(len(value), 8)) != value[:8]:
                    raise ConvertError("LMDB's pages are not at the offsets of their numbers; please report this")
                builder.offset[blob] = offset

    def abort(self) -> None:
        self._pending = []


class _Environment:
    """An LMDB environment for one batch or look-up; its errors are raised as OSError."""

    def __init__(self, folder: str, **options: Any) -> None:
        self._folder, self._options = folder, options

    def __enter__(self) -> Any:
        # py-lmdb 3 has two engines, and an environment variable may choose the file's layout; older versions have one.
        engine: dict[str, Any] = {"lib_version": 0} if int(lmdb.__version__.partition(".")[0]) >= 3 else {}
        # The path is given as bytes, because lmdb would encode it as strict UTF-8, whatever the system's names are.
        # No lock file: staging locks the target. No sync per batch: `finish` syncs once, before the manifest.
        options = self._options | engine | {"mode": 0o644}
        try:
            self._environment = lmdb.open(
                os.fsencode(self._folder), lock=False, sync=False, metasync=False, readahead=False, **options
            )
        except lmdb.Error as error:
            raise _os_error(error, os.path.join(self._folder, DATA_NAME)) from error
        return self._environment

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._environment.close()
        if isinstance(error, lmdb.Error):
            raise _os_error(error, os.path.join(self._folder, DATA_NAME)) from error


def _os_error(error: Exception, data: str) -> OSError:
    """lmdb's error as an OSError. lmdb states a failed call in its message only, and a short write as EIO or ENOSPC."""
    text = str(error)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EACCES):
        if os.strerror(number) in text:
            guessed = number in (errno.EIO, errno.ENOSPC)
            return (_no_room(data) if guessed else None) or OSError(number, os.strerror(number))
    return OSError(text)


def _no_room(data: str) -> OSError | None:
    """Why a file cannot grow (full disk, quota, limit on files), if so. Writes to it: it is discarded anyway."""
    try:
        with open(data, "ab", buffering=0) as file:
            file.write(bytes(_PAGE))
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


class ValueOffsets:
    """Turns values that lmdb returns (views of its map) into offsets in `data.mdb`.

    LMDB writes the number of each page into its header. A value lies in such a page, so its offset is the page's number
    times the page size, plus the position in the page; the map's base address follows and must be the same for all.
    """

    def __init__(self, page: int) -> None:
        self._page = page
        self._base: int | None = None

    def offset(self, value: Any) -> int:
        """The offset of a value in the file.

        Raises:
            FormatError: the page that holds it has no valid number.
        """
        if not len(value):
            return 0
        address: int = np.frombuffer(value, np.uint8).__array_interface__["data"][0]
        if self._base is None:
            self._base = address - self._by_page_number(address)
        return address - self._base

    def _by_page_number(self, address: int) -> int:
        import ctypes

        within = address % self._page
        number = int.from_bytes(ctypes.string_at(address - within, 8), "little")
        offset = number * self._page + within
        if not 2 <= number < 1 << 48:
            raise FormatError(
                "this LMDB does not number its pages as LMDB 0.9 does, so its values cannot be read by offset"
            )
        return offset
