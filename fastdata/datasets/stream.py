"""ImageStream: a data set of any format as an iterable torch data set, the same samples for any workers and ranks.

In: what `fastdata.open` takes (also several tars: a list, a glob, a brace pattern). Out: samples, or whole batches.
Every worker of every rank computes the order of an epoch from (seed, epoch) (`fastdata.order`), so each reads only its
part, in long runs, and they share only the number of the epoch (`fastdata.datasets.epochs`).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from multiprocessing import context
from typing import Any, Literal

import numpy as np
from torch.utils.data import IterableDataset

from fastdata.checks import choice, flag, integer
from fastdata.codec.decode import Rules
from fastdata.datasets.epochs import EpochLedger, StreamPosition, loader_drops_in_workers, warn_of_drops
from fastdata.datasets.iterator import Progress, StreamIterator
from fastdata.datasets.remarks import Remarks
from fastdata.datasets.sample_reader import SampleReader
from fastdata.datasets.samples import Samples
from fastdata.datasets.skipped import Skipped
from fastdata.datasets.source import Source, in_memory, open_source, open_whole_source
from fastdata.datasets.state import as_state, fingerprint, from_state, order_of
from fastdata.errors import OptionError
from fastdata.fields.selection import Selection
from fastdata.formats import FORMATS
from fastdata.formats.base import Reader, allowed_pixels
from fastdata.order import EpochOrder, Even, Split, check_end
from fastdata.sample import SampleDecoder
from fastdata.seeding import word
from fastdata.transforms.callables import Form
from fastdata.transforms.pipeline import Pipeline
from fastdata.world import World, distributed_ranks, worker_info

# Encoded bytes that one worker reads ahead, in the order of the file: long reads, and little beside decoded batches.
_AHEAD_BYTES = 32_000_000
# Records read ahead without shuffling; they lie side by side anyway.
_PLAIN_LOT = 64
# Mixes 128 runs of 32 records; at 30 kB a record, a mean distance of some 100 MB in the file.
_BUFFER_SIZE = 4096


class ImageStream(IterableDataset[Any]):
    """Images and their class numbers, one after the other: `(image, label)`, or whole batches with `batch_size`.

    Without a transform an image is an H x W x 3 uint8 array, RGB, upright, contiguous and writable; a label is an int.
    A batch is `(images, labels)` as torch's `default_collate` stacks them: tensors of what the transform gives, with N
    in front (N x H x W x 3 uint8 without one), and int64 labels of shape (N,). With `fields`, samples and batches are
    dicts.

    Over all ranks and workers each sample comes once per epoch, except for those that make the ranks even. With
    `batch_size` (and `DataLoader(stream, batch_size=None)`) the batches are the same for any number of workers; without
    it only the set of samples is. Each new iterator begins the next epoch.

    Args:
        data: what `fastdata.open` takes, or a reader.
        transform: called with the image, as in `ImageDataset`; must give equal sizes when there is a batch size.
        fields: return dicts with these names, as in `ImageDataset`; batches hold lists of bytes, text and JSON.
        shuffle: permute runs of records by (seed, epoch) and mix them in a buffer.
        buffer_size: how many samples the buffer mixes.
        seed: the seed of the order; the same on all ranks.
        batch_size: the number of samples in a batch of one rank; None for single samples.
        drop_last: leave out the last batch if it is smaller than the others.
        pad: make ranks even with the epoch's first samples. False: every sample comes once; ranks may differ by a
            sample, so may their last batches, or a rank has none, and `len` is each rank's own.
        even: "pad", or "cut": make ranks even by leaving samples out.
        on_error: "raise", or "skip": a sample that cannot be made is replaced by another one, a function of (seed,
            epoch, position), so that batches keep their sizes, and listed in `skipped`. Wrong options, a machine that
            runs out of a resource, and 32 failing records in a row are errors all the same.
        skip_shards: leave out tars of a list, glob, brace pattern or folder that are missing or damaged when the
            stream is made, with a warning; all ranks must see the same files.
        cache: as in `ImageDataset`.
        exact: as in `ImageDataset`.
        form: as in `ImageDataset`.
        verify: as in `ImageDataset`.
        max_pixels: as in `ImageDataset`.
        image_field: as in `ImageDataset`.
        label_field: as in `ImageDataset`.
        progress: as in `ImageDataset`.
        rank: this rank; None: from torch.distributed, else RANK in the environment, else 0.
        world_size: the number of ranks; given with `rank` or not at all.

    Attributes:
        reader: the reader of the data set.
        fields: the names in a sample; None for pairs.
        skipped_shards: (path, reason) of every tar that was left out.
        warnings: (key, message) of images that a decoder warned about but could decode: once per record, the first
            thousand, in this process (each of a DataLoader's workers has its own list).

    Raises:
        FormatError: there is no data set. Also, while iterating: a record is damaged.
        CacheError: the cache would not fit.
        LoadError: while iterating: a transform raised an error, or too many records in a row failed.
        DecodeError: while iterating: an image cannot be decoded; it names data set and key.
        OptionError: a value cannot be used, or would leave ranks without samples. Also, while iterating: images of
            different sizes in one batch.
    """

    def __init__(
        self,
        data: Source,
        *,
        transform: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        fields: Sequence[str] | None = None,
        shuffle: bool = False,
        buffer_size: int = _BUFFER_SIZE,
        seed: int = 0,
        batch_size: int | None = None,
        drop_last: bool = False,
        pad: bool = True,
        even: Even = "pad",
        on_error: Literal["raise", "skip"] = "raise",
        skip_shards: bool = False,
        cache: Literal["ram"] | None = None,
        exact: bool = False,
        form: Form = None,
        verify: bool = True,
        max_pixels: int | None = None,
        image_field: str | None = None,
        label_field: str | None = None,
        progress: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        buffer_size = integer("buffer_size", buffer_size, 1)
        if batch_size is not None:
            batch_size = integer("batch_size", batch_size, 1)
        check_end(batch_size=batch_size, pad=pad, even=even, drop_last=drop_last)
        self.transform, self.shuffle, self.buffer_size = transform, flag("shuffle", shuffle), buffer_size
        self.seed, self.batch_size, self.drop_last, self.pad, self.even = word(seed), batch_size, drop_last, pad, even
        choice("on_error", on_error, ("raise", "skip"))
        self._skipped = Skipped() if on_error == "skip" else None
        self._given = (rank, world_size)
        self._inherited: tuple[int, int] | None = None
        self.exact, self.form = flag("exact", exact), form
        Pipeline(transform, form)  # refuses a transform that cannot be used
        self.skipped_shards: list[tuple[str, str]] = []
        reading: Any = {"image_field": image_field, "label_field": label_field, "max_pixels": max_pixels}
        if flag("skip_shards", skip_shards):
            reader, self.skipped_shards = open_whole_source(data, verify=verify, **reading)
        else:
            reader = open_source(data, verify=verify, **reading)
        self._reader = in_memory(reader, cache, verify=verify, progress=progress)
        self._selection = Selection.of(fields, self.reader.manifest)
        self._rules = Rules.of(self.reader.manifest.options, allowed_pixels(self.reader, max_pixels))
        self._samples = SampleReader(self.reader, verify=verify)
        self._ledger = EpochLedger()
        self._latest: Progress | None = None
        self._split(World.expected(*self._given))  # refuses now what would give no samples later

    @property
    def reader(self) -> Reader:
        return self._reader

    @property
    def fields(self) -> tuple[str, ...] | None:
        return self._selection.names if self._selection.as_dict else None

    @property
    def on_error(self) -> str:
        return "raise" if self._skipped is None else "skip"

    @property
    def warnings(self) -> Remarks:
        return self._samples.remarks

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(key, reason) of the first 16,384 samples that were replaced, also by workers, which read ahead."""
        return [(self.reader.keys[record], reason) for record, reason in self._skipped or ()]

    @property
    def classes(self) -> list[str]:
        """Class names, by number."""
        return list(self.reader.classes)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, also in live workers; the later ones follow it.

        If a loaded state lies in this epoch, its position is kept.
        """
        self._ledger.set_next(integer("epoch", epoch, 0))
        self._latest = None

    def state_dict(self) -> dict[str, Any]:
        """The position of the latest iterator of this process, as plain JSON values: what it has returned.

        After the last sample `over` is true: nothing of that epoch follows. After the iterator has ended, the state is
        that of the next epoch. In a DataLoader's worker it counts that worker's part; torchdata's StatefulDataLoader
        collects these.

        Raises:
            OptionError: a DataLoader's workers had the latest epoch, and only its consumer knows how many batches came.
        """
        world, position = self._expected(), self._position()
        start, taken = position.start, position.taken
        spans = self._split(world).spans(world.rank, world.worker, world.workers, start=start, taken=taken)
        return as_state(order_of(self, world, self._fingerprint), position, world, over=not spans)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: the next iterator returns what an uninterrupted run would have returned next.

        If it is loaded in the main process, the workers of a DataLoader resume from it, too, however many there are.
        With `batch_size`, the number of ranks may differ, if `batch_size * world_size` is the same.

        Raises:
            OptionError: it is a state of other data, another order or another worker.
        """
        world = self._world(World.expected)
        split = self._split(world)
        most = split.batches if self.batch_size else split.samples
        self._ledger.load(from_state(state, order_of(self, world, self._fingerprint), world, most))
        self._latest = None

    def _position(self) -> StreamPosition:
        """The position of the next sample that this process returns."""
        upcoming, had_by_workers = self._ledger.next_position()
        latest, in_worker = self._latest, worker_info() is not None
        if had_by_workers and not in_worker:
            raise OptionError(
                "the workers of a DataLoader read ahead, so this process does not know what of the epoch was handed "
                "out: use torchdata's StatefulDataLoader, whose state_dict asks the workers, or fastdata.DataLoader; "
                "between two epochs, call set_epoch first, which names the next one"
            )
        # A worker's part may end while other workers go on, so a worker never begins the next epoch by itself.
        if latest is None or latest.process != os.getpid() or (latest.ended and not in_worker):
            return upcoming
        return latest.position._replace(taken=latest.position.taken + latest.given)

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.reader)

    def __len__(self) -> int:
        """Batches (or samples, without a batch size) of this rank in an epoch."""
        entry = FORMATS.get(self.reader.manifest.format)
        if entry is not None and entry.scanned and not self.reader.manifest.fingerprint:
            raise TypeError(f"{self.reader.path}: {entry.several} without a fastdata index have no reliable length")
        world = self._expected()
        split = self._split(world)
        return split.batches_of(world.rank) if self.batch_size else split.samples_of(world.rank)

    def __iter__(self) -> Iterator[Any]:
        world = self._world()
        split = self._split(world)
        if world.workers > 1 and world.worker == 0 and loader_drops_in_workers() and self._ledger.warns_first():
            warn_of_drops(self.reader.path, world.workers)
        # Claimed here, not with the first sample, because workers and epochs begin in the order of their iter().
        position = self._ledger.claim()
        order = EpochOrder(split.count, self.seed, position.epoch, self.buffer_size if self.shuffle else 0)
        spans = split.spans(world.rank, world.worker, world.workers, start=position.start, taken=position.taken)
        pipeline = Pipeline(self.transform, self.form)  # the attributes may have been set meanwhile
        decoder = SampleDecoder(self._selection, self._rules, pipeline, self.exact, self.form)
        samples = Samples(self._samples, decoder, order, _AHEAD_BYTES, self._skipped)
        lot = self._lot(world.workers)
        if self.batch_size:
            items, total = samples.batches(spans, max(1, lot // self.batch_size)), len(spans)
        else:
            items, total = samples.singles(spans, lot), sum(stop - start for start, stop in spans)
        self._latest = Progress(position, total)
        return StreamIterator(items, self._latest, self._ledger.use_up)

    def _world(self, ask: Callable[..., World] = World.current) -> World:
        if self._inherited is not None and self._given == (None, None) and worker_info() is not None:
            return ask(*self._inherited)
        return ask(*self._given)

    def _expected(self) -> World:
        """If ranks are made even, only their number matters, which may be known before this rank is."""
        return self._world(World.expected if self.pad else World.current)

    def _split(self, world: World) -> Split:
        split = Split(len(self.reader), world.world_size, self.batch_size, self.drop_last, self.pad, self.even)
        split.check(self.reader.path)
        return split

    def _lot(self, workers: int) -> int:
        """How many records a worker reads ahead: its share of the buffer, limited by memory."""
        if not self.shuffle:
            return _PLAIN_LOT
        some = np.linspace(0, len(self.reader) - 1, 16).astype(np.int64).tolist()  # enough to estimate the usual size
        usual = max(1, sum(self.reader.image_size(index) for index in some) // len(some))
        return max(1, min(self.buffer_size // workers, _AHEAD_BYTES // usual))

    def __getstate__(self) -> dict[str, Any]:
        own = self.__dict__ | {"_latest": None}
        if context.get_spawning_popen() is None:
            return own | {"_ledger": copy.copy(self._ledger)}  # a copy counts by itself from now on
        return own | {"_inherited": distributed_ranks()}  # a spawned worker knows no process group

    def __repr__(self) -> str:
        parts = ("shuffle", "seed", "batch_size", "drop_last", "pad", "even")
        options = ", ".join(f"{name}={getattr(self, name)!r}" for name in parts)
        return f"<ImageStream of {self.reader.path!r}: {len(self.reader)} samples, {options}>"
