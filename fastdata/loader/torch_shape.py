"""TorchShape: what training code written for torch's DataLoader asks of a loader, beside its batches.

Attributes of the same names; arguments that have no meaning here, refused with what takes their place; and no way to
change a loader that exists, since its workers have been told how to make batches.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastdata.datasets import ImageDataset
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from fastdata.formats.base import Reader
    from fastdata.loader.given import Given
    from fastdata.loader.passes import Passes, Position
    from fastdata.loader.schedule import Schedule
    from fastdata.loader.settings import Settings
    from fastdata.order import Split

# What takes the place of torch's arguments; those that are None, or torch's default, change nothing.
INSTEAD = {
    "dataset": "the first argument is the data: a path, a reader or an ImageDataset",
    "worker_init_fn": "workers need no seeding: what is drawn is a function of (seed, epoch, index)",
    "generator": "give seed=, of which all random numbers are a function",
    "pin_memory_device": "pin_memory=True pins for the current device",
    "in_order": "batches always come in order",
}
_DEFAULTS = {"pin_memory_device": "", "in_order": True}


def refuse_torch_arguments(unknown: dict[str, Any]) -> dict[str, Any]:
    """Take torch's arguments out of those that are unknown here, where they are at their defaults.

    Raises:
        OptionError: one of them is not, and cannot be followed; it names what takes its place.
    """
    left = dict(unknown)
    for name in [name for name in unknown if name in INSTEAD and name != "dataset"]:
        if (value := left.pop(name)) is not None and value != _DEFAULTS.get(name):
            raise OptionError(f"{name} has no meaning here: {INSTEAD[name]}")
    return left


class TorchShape(ABC):
    """The attributes of torch's DataLoader.

    Those that mean nothing here are what they are in torch where nobody gives them.
    """

    worker_init_fn = None
    generator = None
    pin_memory_device = ""
    in_order = True

    _fixed: frozenset[str] = frozenset()
    _checked: Settings
    _given: Given
    _passes: Passes
    _reader: Reader

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed or (name in INSTEAD and name != "dataset"):
            raise AttributeError(
                f"{name} cannot be changed: workers have been told already; make another loader with it"
            )
        super().__setattr__(name, value)

    @property
    def reader(self) -> Reader:
        return self._reader

    @property
    def fields(self) -> tuple[str, ...] | None:
        selection = self._checked.selection
        return selection.names if selection.as_dict else None

    @property
    def batch_size(self) -> int | None:
        """None with a `batch_sampler`, and where single samples are given."""
        return self._checked.batch_size

    @property
    def num_workers(self) -> int:
        return self._checked.num_workers

    @property
    def drop_last(self) -> bool:
        return self._checked.drop_last

    @property
    def shuffle(self) -> bool:
        return self._checked.shuffle

    @property
    def seed(self) -> int:
        return self._checked.seed

    @property
    def on_error(self) -> str:
        return self._checked.on_error

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any] | None:
        return self._checked.collate_fn

    @property
    def pin_memory(self) -> bool:
        """Whether batches are pinned: not where there is no device to pin for."""
        return self._checked.pin_memory

    @property
    def timeout(self) -> float:
        return self._checked.timeout

    @property
    def prefetch_factor(self) -> int | None:
        """None without workers, as torch has it."""
        return self._checked.prefetch_factor if self._checked.num_workers else None

    @property
    def persistent_workers(self) -> bool:
        return self._checked.persistent_workers

    @property
    def multiprocessing_context(self) -> Any:
        return self._checked.context

    @cached_property
    def dataset(self) -> Any:
        """The data as a torch Dataset: the ImageDataset that was given, or one; a Subset of it with `indices`."""
        from torch.utils.data import Subset

        given = self._given
        data = given.dataset or ImageDataset(
            self.reader, given.transform, fields=self.fields, exact=given.exact, form=given.form, verify=given.verify,
            max_pixels=given.max_pixels,
        )  # fmt: skip
        chosen = self._checked.indices
        return data if chosen is None else Subset(data, chosen.tolist())

    @property
    def sampler(self) -> Any:
        """The sampler that was given, the batch_sampler's own, or what gives the indices of this rank."""
        if self._checked.sampler is not None:
            return self._checked.sampler
        if self._checked.batch_sampler is not None:
            return getattr(self._checked.batch_sampler, "sampler", None)

        def length() -> int:
            rank, split = self._split()
            return split.samples_of(rank)

        return EpochSampler(self.set_epoch, length, self._upcoming)

    @property
    def batch_sampler(self) -> Any:
        """The one that was given, else torch's around `sampler`; None where single samples are given."""
        from torch.utils.data import BatchSampler

        if self._checked.batch_sampler is not None or self._checked.batch_size is None:
            return self._checked.batch_sampler
        return BatchSampler(self.sampler, self._checked.batch_size, self._checked.drop_last)

    def _upcoming(self) -> Iterator[list[int]]:
        """The records of the batches of the next pass."""
        schedule = self._schedule(self._passes.start.position)
        for number in itertools.count(schedule.first):
            wanted = schedule.batch(number)
            if wanted is None:
                return
            yield wanted.records.tolist()

    @abstractmethod
    def set_epoch(self, epoch: int) -> None: ...
    @abstractmethod
    def _split(self) -> tuple[int, Split]: ...
    @abstractmethod
    def _schedule(self, position: Position) -> Schedule: ...


class EpochSampler:
    """The order of a loader without a sampler of the user's, in the shape of a sampler.

    Args:
        set_epoch: names the loader's next epoch.
        length: how many samples of an epoch this rank has.
        upcoming: the records of each batch of the next pass.
    """

    def __init__(
        self, set_epoch: Callable[[int], None], length: Callable[[], int], upcoming: Callable[[], Iterator[list[int]]]
    ) -> None:
        self.set_epoch, self._length, self._upcoming = set_epoch, length, upcoming

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> Iterator[int]:
        for records in self._upcoming():
            yield from records
