"""ImageStream: a data set of any format as an iterable torch data set, the same samples for any workers and ranks.

In: what `fastdata.open` takes (also several tars: a list, a glob, a brace pattern). Out: `(image, label)`, or whole
batches. The order of an epoch is arithmetic on (seed, epoch) that every worker of every rank does for itself
(`fastdata.order`), so each reads only its part, in long runs, and nothing is passed between them but the number of the
epoch (`fastdata.datasets.epochs`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, default_collate

from fastdata.datasets.epochs import EpochLedger
from fastdata.datasets.pictures import Pictures, named
from fastdata.datasets.remarks import Remarks
from fastdata.datasets.source import Source, open_source
from fastdata.errors import FastdataError, OptionError
from fastdata.order import EpochOrder, Even, Split, check_even
from fastdata.seeding import word
from fastdata.transforms.callables import Form, as_form
from fastdata.transforms.pipeline import Pipeline
from fastdata.world import World, distributed_ranks, worker_place

# Encoded bytes that one worker reads ahead, in the order of the file: long reads, and little beside decoded batches.
_AHEAD_BYTES = 32_000_000
# Records read ahead when nothing is shuffled; they lie side by side anyway.
_PLAIN_LOT = 64
# Mixes 128 runs of 32 records; at 30 kB a record, a mean distance of some 100 MB in the file.
_BUFFER_SIZE = 4096


class ImageStream(IterableDataset[Any]):
    """Pictures and their class numbers, one after the other: `(image, label)`, or whole batches with `batch_size`.

    Without a transform an image is an H x W x 3 uint8 array, RGB, upright, contiguous and writable; a label is an int.
    A batch is `(images, labels)` as torch's `default_collate` stacks them: tensors of what the transform gives, with N
    in front (N x H x W x 3 uint8 without one), and int64 labels of shape (N,).

    Over all ranks and workers each sample comes once an epoch, but for what makes the ranks even. With `batch_size`
    (and `DataLoader(stream, batch_size=None)`) whole batches come, the same ones for any number of workers; without it
    only the set of samples is promised. Epochs count themselves.

    Args:
        path_or_shards: what `fastdata.open` takes, or a reader.
        transform: called with the picture, as in `ImageDataset`; must give equal sizes when there is a batch size.
        shuffle: permute runs of records by (seed, epoch) and mix them in a buffer.
        buffer_size: how many samples the buffer mixes.
        seed: of the order; the same on all ranks.
        batch_size: the number of samples in a batch of one rank; None for single samples.
        drop_last: leave out the last batch when it is smaller than the others.
        pad: make ranks even with the epoch's first samples. False: every sample once; ranks differ by a sample, their
            last batches too, or lack theirs, and `len` is each rank's own.
        even: "pad", or "cut": make ranks even by leaving out what is left over.
        form: what the transform is called with, as in `ImageDataset`.
        verify: compare the checksum (CRC-32) of every image that is read with the one in the index.
        max_pixels: larger images are refused before they take memory; None: as the reader was opened, else 178,956,970.
            A data set may lower this limit, never raise it.
        image_field: which field holds the image, in data that others wrote and whose names do not tell.
        label_field: which field holds the label, likewise ("json:label": an entry of a JSON field).
        rank: this rank; None finds out (torch.distributed, RANK in the environment, else 0).
        world_size: the number of ranks; given with `rank` or not at all.

    Attributes:
        reader: the reader, for whatever is not said here.
        warnings: (key, message) where a decoder had something to say of an image and made one all the same: once a
            record, of the first thousand, in this process (each of a DataLoader's workers has its own list).

    Raises:
        FormatError: there is no data set. Also, while iterating: a record is damaged.
        DecodeError: while iterating: a picture cannot be decoded; it names data set and key.
        OptionError: values that cannot be, or that would leave ranks without samples. Also, while iterating: pictures
            of different sizes in one batch.
    """

    def __init__(
        self,
        path_or_shards: Source,
        *,
        transform: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        shuffle: bool = False,
        buffer_size: int = _BUFFER_SIZE,
        seed: int = 0,
        batch_size: int | None = None,
        drop_last: bool = False,
        pad: bool = True,
        even: Even = "pad",
        form: Form = None,
        verify: bool = True,
        max_pixels: int | None = None,
        image_field: str | None = None,
        label_field: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        _check_count("buffer_size", buffer_size)
        if batch_size is not None:
            _check_count("batch_size", batch_size)
        elif drop_last:
            raise OptionError("drop_last=True needs a batch_size: without one there is no last batch")
        self.transform, self.shuffle, self.buffer_size, self.seed = transform, shuffle, buffer_size, word(seed)
        check_even(pad=pad, even=even, drop_last=drop_last)
        self.batch_size, self.drop_last, self.pad, self.even = batch_size, drop_last, pad, even
        self._given = (rank, world_size)
        self._inherited: tuple[int, int] | None = None
        self.form, self._pipeline = form, Pipeline(transform, form)
        self.reader = open_source(
            path_or_shards, image_field=image_field, label_field=label_field, max_pixels=max_pixels, verify=verify
        )
        self._pictures = Pictures(self.reader, verify=verify, max_pixels=max_pixels)
        self._ledger = EpochLedger()
        self._split(World.expected(*self._given))  # refuses now what could give nothing later

    @property
    def warnings(self) -> Remarks:
        return self._pictures.remarks

    @property
    def classes(self) -> list[str]:
        """Class names, by number."""
        return list(self.reader.classes)

    def set_epoch(self, epoch: int) -> None:
        """Name the next epoch; those after it count on from there. Also reaches workers that live already."""
        _check_count("epoch", epoch, 0)
        self._ledger.name_next(epoch)

    def __len__(self) -> int:
        """Batches (or samples, without a batch size) of this rank in an epoch."""
        if self.reader.manifest.format == "tar" and not self.reader.manifest.fingerprint:
            raise TypeError(f"{self.reader.path}: tars without a fastdata index have no length that could be relied on")
        # Of ranks that are made even the number alone matters, which may be known long before this rank is.
        world = World.expected(*self._given) if self.pad else self._world()
        split = self._split(world)
        return split.batches_of(world.rank) if self.batch_size else split.samples_of(world.rank)

    def __iter__(self) -> Iterator[Any]:
        world = self._world()
        split = self._split(world)
        # Claimed here, not when the first sample is asked for: workers and epochs begin in the order of their iter().
        epoch = self._ledger.claim()
        order = EpochOrder(split.count, self.seed, epoch, self.buffer_size if self.shuffle else 0)
        lot = self._lot(world.workers)
        spans: Iterator[tuple[int, int]] = iter(split.spans(world.rank, world.worker, world.workers))
        if self.batch_size:
            return self._batches(order, spans, max(1, lot // self.batch_size))
        return self._samples(order, spans, lot)

    def _world(self) -> World:
        if self._inherited is not None and self._given == (None, None) and worker_place() is not None:
            return World.current(*self._inherited)
        return World.current(*self._given)

    def _split(self, world: World) -> Split:
        split = Split(len(self.reader), world.size, self.batch_size, self.drop_last, self.pad, self.even)
        split.check(self.reader.path)
        return split

    def _lot(self, workers: int) -> int:
        """How many records a worker reads ahead: its share of the buffer, as far as memory allows."""
        if not self.shuffle:
            return _PLAIN_LOT
        some = np.linspace(0, len(self.reader) - 1, 16).astype(np.int64).tolist()  # enough to know what is usual
        usual = max(1, sum(self.reader.image_size(index) for index in some) // len(some))
        return max(1, min(self.buffer_size // workers, _AHEAD_BYTES // usual))

    def _samples(self, order: EpochOrder, spans: Iterator[tuple[int, int]], lot: int) -> Iterator[tuple[Any, Any]]:
        for start, stop in spans:
            for low in range(start, stop, lot):
                indices = order.indices(low, min(low + lot, stop))
                ahead, numbers = self._read(indices), self._numbers(order, indices)
                for index in indices.tolist():
                    yield self._sample(index, ahead, next(numbers))

    def _batches(self, order: EpochOrder, spans: Iterator[tuple[int, int]], lot: int) -> Iterator[Any]:
        while parts := [order.indices(*span) for _, span in zip(range(lot), spans, strict=False)]:
            ahead = self._read(np.concatenate(parts))
            for indices in parts:
                numbers = self._numbers(order, indices)
                yield self._collate([self._sample(index, ahead, next(numbers)) for index in indices.tolist()])

    def _read(self, indices: NDArray[np.int64]) -> dict[int, bytes]:
        """The pictures' bytes, read in the order of the file, until there are enough."""
        ahead: dict[int, bytes] = {}
        room = _AHEAD_BYTES
        for index in np.unique(indices).tolist():
            blob = self._pictures.encoded(index)
            room -= len(blob)
            if room < 0:
                break
            ahead[index] = bytes(blob)
        return ahead

    def _numbers(self, order: EpochOrder, indices: NDArray[np.int64]) -> Iterator[list[float]]:
        """What the geometric transforms draw, sample by sample: the same ones in whatever worker."""
        return iter(self._pipeline.numbers(self.seed, order.epoch, indices).tolist())

    def _sample(self, index: int, ahead: dict[int, bytes], numbers: list[float]) -> tuple[Any, Any]:
        try:
            image: Any = self._pictures.render(index, self._pipeline.plan_of(numbers), data=ahead.get(index))
            image = self._pipeline.call(image) if self._pipeline.callables else as_form(image, self.form)
        except FastdataError as error:
            raise named(self.reader, index, error) from error
        return image, int(self.reader.labels[index])

    def _collate(self, samples: list[tuple[Any, Any]]) -> Any:
        shapes = sorted({tuple(picture.shape) for picture, _ in samples if hasattr(picture, "shape")})
        if len(shapes) > 1:
            raise OptionError(
                f"{self.reader.path}: pictures of different shapes in one batch: {', '.join(map(str, shapes[:4]))}; "
                "give a transform that makes them equal, or convert with --resize N --resize-mode crop"
            )
        return default_collate(samples)

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is None:
            return self.__dict__ | {"_ledger": copy.copy(self._ledger)}  # a copy counts for itself from here on
        return self.__dict__ | {"_inherited": distributed_ranks()}  # a spawned worker knows no process group

    def __repr__(self) -> str:
        parts = ("shuffle", "seed", "batch_size", "drop_last", "pad", "even")
        words = ", ".join(f"{name}={getattr(self, name)!r}" for name in parts)
        return f"<ImageStream of {self.reader.path!r}: {len(self.reader)} samples, {words}>"


def _check_count(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"{name} must be an int, {least} or more, not {value!r}")
