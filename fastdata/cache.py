"""CachedReader: a Reader that copies another one's records into memory, once for a whole process tree.

In: any reader. Out: the same records, from one anonymous shared block that is filled when the reader is created. The
files are not needed afterwards. Workers share the block under every start method; an ordinary pickle holds the inner
reader's path, and loading it fills a new cache. Encoded bytes are kept, not pixels, and views of them are read-only,
so changing a sample never changes the cache.

Each rank that is started by itself fills its own cache (memory is shared with children only), so the free memory of a
machine is divided among its ranks (`World.local_world_size`).
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from multiprocessing import context
from typing import Any

from fastdata.errors import CacheError, FormatError, ResourceError
from fastdata.formats.base import READ_OPTIONS, Reader, ReadOptions, raise_named
from fastdata.formats.concat import check_index
from fastdata.formats.files import Scratch
from fastdata.formats.index import IndexBuilder, pack, unpack
from fastdata.formats.locations import record_of
from fastdata.formats.packed import Packed, PackedReader
from fastdata.formats.verify import Problem, problems_of
from fastdata.limits import refused
from fastdata.manifest import Manifest
from fastdata.progress import progress_bar
from fastdata.sharedmem import SharedBlock, free_memory
from fastdata.world import World

# Decoded batches, the model and the page cache want the rest.
_SHARE_OF_FREE = 0.5
# An index row, with the memory to sort it, and a key and a path of usual length.
_INDEX_BYTES = 200


class CachedReader(PackedReader):
    """All records of a reader, in shared memory. The inner reader may be closed afterwards.

    Args:
        reader: the reader to copy; it must be picklable, as all readers are.
        progress: show the progress on stderr.
        verify: compare the index with its hash, and all data with their checksums, once.

    Raises:
        CacheError: it would take more than half of the free memory, or more than this process may have.
        FormatError: the data are damaged.
    """

    def __init__(self, reader: Reader, *, progress: bool = False, verify: bool = True) -> None:
        self._source = pickle.dumps(reader), verify
        if verify:
            check_index(reader)
        payload = sum(map(reader.size, range(len(reader))))
        _check_fits(reader, payload)
        try:
            block = SharedBlock(max(1, payload))
            builder = _fill(reader, block.buffer, verify, progress=progress)
            index = b"".join(pack(builder.columns()))
            index_block = SharedBlock(len(index))
            index_block.buffer[:] = index
        except (ResourceError, MemoryError) as error:
            reason = str(error) if isinstance(error, ResourceError) else refused(error)
            raise CacheError(
                f"{reader.path}: a RAM cache takes {_megabytes(payload)} ({len(reader):,} records): {reason}; "
                "raise the limit, or leave the cache out (the system keeps of the file what fits)"
            ) from error
        fields = tuple(builder.fields)
        options = getattr(reader, "options", READ_OPTIONS)
        self._adopt(dataclasses.replace(reader.manifest, fields=fields), reader.path, options, block, index_block)

    def _adopt(
        self, manifest: Manifest, path: str, options: ReadOptions, block: SharedBlock, index: SharedBlock
    ) -> None:
        self._blocks = block, index
        columns = unpack(index.buffer.toreadonly(), path)
        packed = Packed(
            path, manifest, columns, (path,), (block.size,), _never, options=options, checksums=False
        )  # they were compared when it was filled
        super().__init__(packed, _Memory(path, block))

    def problems(self) -> Iterator[Problem]:
        """The problems of the data set on disk, as the inner reader reports them."""
        with pickle.loads(self._source[0]) as reader:
            yield from problems_of(reader)

    def close(self) -> None:
        """Release the memory; views that are still held stay valid until they are dropped."""
        super().close()
        for block in self._blocks:
            block.close()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:
            return _refill, self._source
        return _attach, (self._source, self.manifest, self.path, self.options, *self._blocks)

    def __repr__(self) -> str:
        return f"<{super().__repr__()[1:-1]}, cached: {sum(block.size for block in self._blocks):,} bytes>"


class _Memory:
    """Shared memory that takes the place of data files."""

    def __init__(self, path: str, block: SharedBlock) -> None:
        self._path, self._block = path, block
        self._bytes: memoryview | None = block.buffer.toreadonly()

    def __len__(self) -> int:
        return 1

    def read(self, _file: int, offset: int, size: int, _scratch: Scratch | None = None) -> memoryview:
        """A view of the memory: nothing is copied."""
        if self._bytes is None:
            raise ValueError(f"{self._path}: this reader is closed")
        return self._bytes[offset : offset + size]

    def close(self) -> None:
        self._bytes = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:  # the loader pickles it to see what its workers need
            return _never, (self._path,)
        return _Memory, (self._path, self._block)


def _never(path: str) -> Reader:
    raise FormatError(f"{path}: a cached reader is not opened again by its path alone")


def _refill(inner: bytes, verify: bool) -> CachedReader:
    with pickle.loads(inner) as reader:
        return CachedReader(reader, verify=verify)


def _attach(
    source: tuple[bytes, bool], manifest: Manifest, path: str, options: ReadOptions, *blocks: SharedBlock
) -> CachedReader:
    reader = CachedReader.__new__(CachedReader)
    reader._source = source
    reader._adopt(manifest, path, options, *blocks)
    return reader


def _check_fits(reader: Reader, payload: int) -> None:
    needed = payload + _INDEX_BYTES * len(reader)
    ranks = World.local_world_size()
    free = free_memory()
    most = int(free * _SHARE_OF_FREE) // ranks
    if needed > most:
        share = f" shared by {ranks} ranks" if ranks > 1 else ""
        raise CacheError(
            f"{reader.path}: a RAM cache takes {_megabytes(needed)} ({len(reader):,} records), but at most "
            f"{_megabytes(most)}, half of the {_megabytes(free)} that are free{share}, may be taken; "
            "leave the cache out (the system keeps of the file what fits), or convert to smaller images"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _fill(reader: Reader, buffer: memoryview, verify: bool, *, progress: bool) -> IndexBuilder:
    builder = IndexBuilder(reader.manifest.fields)
    offset = 0
    with progress_bar(len(reader), "cache", shown=progress) as bar:
        for row in range(len(reader)):
            try:
                record = record_of(reader, row) if verify else reader[row]
            except Exception as error:
                raise_named(reader, row, error)
                raise
            locations, sizes = [], []
            for blob in record.fields.values():
                end = offset + len(blob)
                if end > len(buffer):
                    raise FormatError(f"{reader.path}: the data changed while they were read into the cache; try again")
                buffer[offset:end] = blob
                locations.append((0, offset))
                sizes.append(len(blob))
                offset = end
            label = int(reader.labels[row])
            builder.add_scanned(record.key, record.path, label, list(record.fields), locations, sizes)
            bar.advance(1)
    return builder
