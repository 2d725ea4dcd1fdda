"""DataLoader: the batches of a data set, decoded by worker processes straight into shared memory."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from fastdata.checks import flag, integer
from fastdata.codec import jpeg
from fastdata.codec.decode import Rules
from fastdata.datasets import ImageDataset
from fastdata.datasets.remarks import Remarks
from fastdata.datasets.source import in_memory, refuse_unknown
from fastdata.datasets.state import fingerprint
from fastdata.fields.selection import Selection
from fastdata.formats import checksum
from fastdata.formats.base import Reader, allowed_pixels
from fastdata.formats.locations import blob_source_of
from fastdata.loader.collate import Collation
from fastdata.loader.draws import drawn
from fastdata.loader.epoch_iterator import EpochIterator
from fastdata.loader.executor_pool import ExecutorPool
from fastdata.loader.given import given_as
from fastdata.loader.passes import Pass, Passes, Position
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.schedule import Ended, Schedule, planned, samples_of, split_of
from fastdata.loader.settings import Settings, checked
from fastdata.loader.torch_shape import INSTEAD, TorchShape, refuse_torch_arguments
from fastdata.order import Even, Split
from fastdata.sample import SampleDecoder
from fastdata.transforms.callables import Form
from fastdata.transforms.engines import engine_name
from fastdata.transforms.pipeline import Pipeline
from fastdata.world import World

if TYPE_CHECKING:
    import multiprocessing.context

    from typing_extensions import Never, Self

# What `images, labels` is; dicts with `fields`, anything with `collate_fn`.
Batch = Any


class DataLoader(TorchShape):
    """Batches of decoded images, the same for any number of workers, format, start method and split into ranks.

    Yields `(images, labels)`: images uint8 of shape (batch_size, 3, height, width), an NCHW view of NHWC memory
    (channels_last); labels int64 of shape (batch_size,). A batch belongs to the consumer as long as it, or any view of
    it, is alive.

    Args:
        data: a path (what `fastdata.open` takes), a Reader, or an ImageDataset, whose transform then counts.
        batch_size: samples in a batch, on each rank; None gives single samples, `(image, label)` with an image of shape
            (3, height, width) and an int, or what `collate_fn` makes of one.
        shuffle: a new order each epoch, a function of (seed, epoch).
        transform: one transform or a sequence: fastdata's own first (only what they need is decoded), then any
            callables. An albumentations transform is called with `image=array`, a torchvision transform with a uint8
            CHW tensor, any other callable with the HWC uint8 array.
        fields: yield dicts of these instead: "image", "label", "key", "index", "text" and "annotation" (text and JSON,
            decoded), or the name of a record's field (bytes). None where a record lacks the field.
        sampler: gives the indices of this rank's epoch, or (index, occurrence) tuples; its `set_epoch` is called where
            it has one. With a length of up to 2**24 it is drawn to that length by `iter()`, else batch by batch.
        batch_sampler: gives the batches of this rank's epoch, of any sizes, as lists of what a `sampler` gives; leave
            out batch_size, shuffle, sampler and drop_last.
        indices: use these records only; one that comes twice is augmented twice.
        repeats: so many copies of every record in an epoch, each augmented anew, and dealt over the ranks.
        views: with 2 or more, that many augmentations of each record, which is read once: a list of image tensors takes
            the place of the one.
        num_workers: processes (or threads); None: the cores that this process may use, divided by LOCAL_WORLD_SIZE; 0:
            in this process.
        worker_mode: "process" or "thread".
        drop_last: leave out the last batch where it is smaller.
        pad: make the ranks' last batches equal with the epoch's first samples. False: every sample exactly once; they
            may differ by a sample, or be missing, and `len` is each rank's own.
        even: "pad", or "cut": make the ranks' last batches equal by leaving out what is left over.
        seed: of order and augmentation.
        rank: None: torch.distributed if it is initialised, else RANK and WORLD_SIZE, else 0 of 1.
        world_size: the number of ranks; given with `rank` or not at all.
        cache: "ram" keeps the encoded data in memory, one copy for all workers.
        exact: never decode at a reduced DCT scale (which is done where a crop is at least twice its target).
        form: what the first callable of the transform is called with: "array" (H x W x 3 uint8), "tensor" (3 x H x W
            uint8) or "pil" (a PIL image); None goes by whose transform it is.
        verify: compare the checksum (CRC-32) of every image and field that is read with the one in the index; with
            `cache`, once, while it is filled. False leaves it out.
        max_pixels: larger images are refused before they take memory; None: as `data` was opened, else 178,956,970. A
            data set may lower this limit, never raise it.
        image_field: which field holds the image, in data that others wrote and whose names do not tell.
        label_field: which field holds the label, likewise ("json:label": an entry of a JSON field).
        on_error: "raise", or "skip": a sample that cannot be made is replaced by another one, a function of (seed,
            epoch, position), and listed in `skipped`.
        collate_fn: makes a batch of a list of samples, in this process. For samples of unequal shapes; slower, since
            pixels then pass through a pipe.
        pin_memory: copy batches into pinned memory.
        prefetch_factor: batches under way for each worker.
        persistent_workers: keep the workers for the next epoch.
        timeout: seconds to wait for a batch at most, and for each index of a `sampler`; 0: for ever.
        multiprocessing_context: a start method's name or a context; None: the platform's default.
        progress: show on stderr how far the cache is.

    Attributes:
        reader: where the records come from.
        skipped: (key, reason) of every sample that was replaced.
        warnings: (key, message) where a decoder had something to say of an image and made one all the same, once a
            record and epoch, in the order of the batches; of the first thousand. `warnings.left_out` counts the others.

    Raises:
        OptionError: values that cannot be used, or exclude each other.
        TypeError: `data` is nothing that can be read here, or an argument that there is not.
        AttributeError: what a loader was made with is assigned to.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | Sequence[str] | Reader | ImageDataset,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        *,
        transform: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        fields: Sequence[str] | None = None,
        sampler: Iterable[int] | Iterable[tuple[int, int]] | None = None,
        batch_sampler: Iterable[Sequence[int]] | Iterable[Sequence[tuple[int, int]]] | None = None,
        indices: Sequence[int] | None = None,
        repeats: int = 1,
        views: int = 1,
        num_workers: int | None = None,
        worker_mode: Literal["process", "thread"] = "process",
        drop_last: bool = False,
        pad: bool = True,
        even: Even = "pad",
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        cache: Literal["ram"] | None = None,
        exact: bool = False,
        form: Form = None,
        verify: bool = True,
        max_pixels: int | None = None,
        image_field: str | None = None,
        label_field: str | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        prefetch_factor: int | None = 2,
        persistent_workers: bool = True,
        timeout: float = 0,
        multiprocessing_context: str | multiprocessing.context.BaseContext | None = None,
        progress: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown("DataLoader", DataLoader.__init__, refuse_torch_arguments(unknown), INSTEAD)
        given = given_as(data, image_field=image_field, label_field=label_field, max_pixels=max_pixels)
        verify = flag("verify", verify) and given.verify
        self._given = given = given._replace(
            transform=given.transform_or(transform), exact=flag("exact", exact) or given.exact,
            form=form or given.form, verify=verify,
        )  # fmt: skip
        self._reader = in_memory(given.reader, cache, verify=verify, progress=progress)
        self._checked = checked(
            len(self.reader),
            {
                "batch_size": batch_size, "shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler,
                "selection": Selection.of(given.fields_or(fields), self.reader.manifest), "indices": indices,
                "repeats": repeats, "views": views, "pad": flag("pad", pad), "even": even,
                "num_workers": num_workers, "worker_mode": worker_mode, "drop_last": drop_last, "seed": seed,
                "rank": rank, "world_size": world_size, "on_error": on_error, "collate_fn": collate_fn,
                "pin_memory": pin_memory, "prefetch_factor": prefetch_factor,
                "persistent_workers": persistent_workers, "verify": verify, "timeout": timeout,
                "multiprocessing_context": multiprocessing_context,
            },
        )  # fmt: skip
        self._ranks_given = rank is not None
        if not self._checked.sampled:
            split_of(self._checked, self._samples or 0)
        rules = Rules.of(self.reader.manifest.options, allowed_pixels(self.reader, given.max_pixels))
        pipeline = Pipeline(given.transform, given.form)
        selection = self._checked.selection
        decoder = SampleDecoder(selection, rules, pipeline, given.exact, given.form, given.target_transform)
        self._spec = SampleSpec(
            decoder, blob_source_of(self.reader), self._checked.seed, on_error == "skip", self._checked.views,
            tuple(blob_source_of(self.reader, stored.record_name) for stored in selection.stored),
        )  # fmt: skip
        self._executors = ExecutorPool(self._spec, self._checked)
        self._passes = Passes()
        self.skipped: list[tuple[str, str]] = []
        self.warnings = Remarks()
        self._executors.end_with(self)

    @property
    def _settings(self) -> Settings:
        """As they were checked; who did not name a rank may start torch.distributed after making the loader."""
        if not self._ranks_given and (world := World.expected()) != self._checked.world:
            self._checked = dataclasses.replace(self._checked, world=world)
        return self._checked

    @property
    def _ranked(self) -> Settings:
        """The settings for an epoch, which is one rank's.

        Raises:
            OptionError: nothing tells yet which rank this is.
        """
        return self._settings if self._ranks_given else dataclasses.replace(self._settings, world=World.current())

    @property
    def _samples(self) -> int | None:
        """Samples of an epoch; None where a sampler has no length."""
        return samples_of(self._settings, len(self.reader))

    def __len__(self) -> int:
        """The number of batches of an epoch on this rank."""
        rank, split = self._split()
        return split.batches_of(rank)

    def _split(self) -> tuple[int, Split]:
        """This rank, and how an epoch is divided; where ranks are made even, it matters little which one this is."""
        settings = self._settings if self._settings.pad else self._ranked
        samples = self._samples
        if samples is None:
            raise TypeError(
                f"the length of this loader is that of its {settings.sampled}, which has none: give it a __len__"
            )
        return 0 if settings.sampled else settings.world.rank, split_of(settings, samples)

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch; the first one is 0. It is used up when the first batch is asked for."""
        settings = self._ranked
        iterator = EpochIterator(
            settings, self.reader, Pass(self._passes, self._schedule), self._executors,
            Collation(settings, self.reader), spec=self._spec,
            skipped=self.skipped, remarks=self.warnings,
        )  # fmt: skip
        self._executors.watch(iterator)
        return iterator

    def _schedule(self, position: Position) -> Schedule:
        """The batches of an epoch from a position on."""
        settings = self._ranked
        if position.over:
            return Ended(position.epoch)
        make = drawn if settings.sampled else planned
        return make(settings, len(self.reader), position.epoch, position.batches(settings))

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its start; or from where a state stood that was loaded and is in it.

        So a training loop that names every epoch goes on where it was, too. Iterators that exist stay as they are.
        """
        self._passes.name(integer("epoch", epoch, 0))

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.reader)

    def state_dict(self) -> dict[str, Any]:
        """Where this loader stands, as plain JSON values: what was handed out, by the iterator that began last."""
        return self._passes.position.state(self._settings, self._fingerprint, self._samples)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state: the next iterator gives the batches that an unbroken run would have given next.

        None, where the state was taken behind the last batch of an epoch: the one after that is the next epoch. The
        numbers of workers may differ, and that of ranks too where `batch_size * world_size` is the same.

        Raises:
            OptionError: it is of other data or another order (seed, shuffle, repeats, indices, a sampler, or how an
                epoch ends), or does not fall between two of these global batches.
        """
        self._passes.load(Position.load(state, self._settings, self._fingerprint, self._samples))

    def close(self) -> None:
        """End the workers, and the iterators in use: the batches that they gave stay, going on is an error."""
        self._executors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        parts = f"batch_size {self.batch_size}, {self.num_workers} workers, shrinks with {engine_name()}"
        parts += f", decodes JPEGs with {jpeg.engine()}, computes checksums with {checksum.engine()}"
        return f"<DataLoader of {self.reader!r}: {parts}>"


DataLoader._fixed = frozenset(inspect.signature(DataLoader).parameters) | {"dataset", "reader"}
