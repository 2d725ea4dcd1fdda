"""Copy batches to the device, one ahead of training.

In: any iterable of batches. Out: the same batches on the device. On CUDA the copies (from pinned memory) and the
scaling of images run on a side stream while the consumer computes; `docs/cuda.md` shows why no batch is overwritten or
read too early. Elsewhere the same scaling and cast run without a stream, with equal bits. Promises: order, number and
nesting of the batches stay; an exception of the loader is raised after the batches before it; nothing is left behind
when a loop is left early.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import GeneratorType
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

from fastdata.ahead import Progress, one_ahead
from fastdata.checks import refuse
from fastdata.scaling import IMAGENET_MEAN, IMAGENET_STD, Scaling, make_scaling
from fastdata.tree import map_tensors
from fastdata.turn import InTurn

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "CUDAPrefetcher", "one_ahead"]

T = TypeVar("T")

# Copies whose sources are still held when the next batch is asked for. One: a loader with two slots then always has a
# free one, and the host runs at most two steps ahead of the device, which bounds the memory of batches in flight.
_MAX_PENDING = 1
_END = object()


class CUDAPrefetcher(Generic[T]):
    """Wrap any iterable of batches and yield them on the device, copied one ahead on a side stream.

    Tensors in tuples, named tuples, lists, mappings and dataclasses, however nested, are moved; everything else
    (strings, numpy arrays, ...) stays as it is. With `mean` and `std`, or `dtype`, the images among them are scaled
    and cast on the device, so that one byte a value travels. **Images** are the uint8 tensors of four dimensions
    with three channels, N x 3 x H x W (in either memory format, which is kept) or N x H x W x 3; so labels, boxes,
    masks (N x H x W or one channel) and tensors that are floating already stay as they are.

    The arithmetic is float32, whatever `dtype`: (x - 255 mean) / (255 std), which is torchvision's
    `to_dtype(torch.float32, scale=True)` and `normalize` within rounding, then the cast. It has no multiply followed
    by an add, which a device might fuse, so CPU and GPU give the same bits.

    Without CUDA the same happens on the CPU (or by plain `.to` on another device), without the look-ahead. There, with
    neither `mean`, `std` nor `dtype`, batches pass unchanged: the very same objects.

    Attributes of the loader (`dataset`, `sampler`, `set_epoch`, ...) are available on the prefetcher. Each `iter()` is
    a new pass through the loader. Around a `fastdata.DataLoader`, the prefetcher's `state_dict()` counts the batches
    that the training loop has received (the loader's own counts those that are copied ahead, too).

    Args:
        loader: any iterable of batches.
        device: the target device; None is the current CUDA device if there is one, else the CPU.
        mean: three numbers in torchvision's convention, for values from 0 to 1; together with `std`.
        std: three numbers in the same convention.
        dtype: float32, float16, bfloat16 or float64; None is float32 if `mean` and `std` are given. Alone it scales
            images to 0..1.

    Raises:
        OptionError: an argument that cannot be used. Also, while iterating, if images were to be scaled and a batch
            has floating N x 3 x H x W tensors where uint8 ones were expected.
    """

    def __init__(
        self,
        loader: Iterable[T],
        device: torch.device | str | int | None = None,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if isinstance(loader, str | bytes) or not (isinstance(loader, Iterable) or hasattr(loader, "__getitem__")):
            refuse("loader", "an iterable of batches, like fastdata.DataLoader(path)", loader)
        self.loader = loader
        self.device = _resolve_device(device)
        self._scaling = make_scaling(mean, std, dtype)
        # One stream for the lifetime of the prefetcher: the allocator keeps a pool of blocks for each stream, so a new
        # stream in each epoch would leave a pool behind each time.
        self._side_stream: torch.cuda.Stream | None = None
        self._progress: Progress | None = None

    def __iter__(self) -> Iterator[T]:
        return InTurn(self._moved(iter(self.loader)))  # the pass begins now, as it does without a prefetcher

    def _moved(self, batches: Iterator[T]) -> Generator[T, None, None]:
        try:
            if self.device.type == "cuda":
                yield from self._through_side_stream(batches)
            else:
                # `map` holds no batch while the consumer works or the loader waits for a free slot.
                yield from map(self._moved_batch, batches)
        finally:
            _close(batches, self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # TypeError if the loader has no length, as it should be

    def state_dict(self) -> Any:
        """The loader's state, as of the last delivered batch."""
        now = self.loader.state_dict()  # type: ignore[attr-defined]  # AttributeError if the loader has none
        return now if self._progress is None else self._progress.as_delivered(now)

    def load_state_dict(self, state: Any) -> None:
        """Load a state into the loader."""
        self._progress = None
        self.loader.load_state_dict(state)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not found. Special names and an unset `loader` (copy, pickle) must not recurse.
        if name == "loader" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Attributes that are read from the loader are set there, too, so that a loader can refuse them.
        if name.startswith("_") or name in ("loader", "device"):
            super().__setattr__(name, value)
        else:
            setattr(self.loader, name, value)

    def _moved_batch(self, batch: T) -> T:
        scale = self._scaling or _unscaled
        if self._scaling is not None:
            self._scaling.check(batch)
        return map_tensors(batch, lambda tensor: scale(tensor.to(self.device)))

    def _through_side_stream(self, batches: Iterator[T]) -> Iterator[T]:
        if self._side_stream is None:
            self._side_stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        passage = _Passage[T](self._side_stream, self.device, self._scaling)
        self._progress = progress = Progress(self.loader)
        batches = progress.recording(batches)
        try:
            for copied in one_ahead(iter(lambda: passage.start_next(batches), None)):
                progress.deliver()
                yield passage.deliver(copied)
            progress.deliver()  # the end
        finally:
            passage.finish()


@dataclasses.dataclass(slots=True)
class _Copied(Generic[T]):
    """A batch whose copy is queued: usable on a stream that waits for `done`."""

    batch: T | None
    made: list[Tensor]
    done: torch.cuda.Event


class _Passage(Generic[T]):
    """One pass through the loader on the side stream; it keeps the sources of its copies alive."""

    def __init__(self, stream: torch.cuda.Stream, device: torch.device, scaling: Scaling | None) -> None:
        self._stream = stream
        self._device = device
        self._scaling = scaling
        self._scale: Callable[[Tensor], Tensor] = scaling or _unscaled
        self._pending: deque[tuple[torch.cuda.Event, list[Tensor]]] = deque()

    def start_next(self, batches: Iterator[T]) -> _Copied[T] | None:
        """Queue the copy and scaling of the next batch after the work the consumer has queued; None at the end."""
        self._release()
        batch = next(batches, _END)
        return None if batch is _END else self._start(cast(T, batch))

    def _start(self, batch: T) -> _Copied[T]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        if self._scaling is not None:
            self._scaling.check(batch)
        made: list[Tensor] = []
        sources: list[Tensor] = []
        # A blocking event lets the host sleep in `synchronize`, where the default would keep a core busy.
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        try:
            with torch.cuda.stream(self._stream):
                moved = map_tensors(batch, lambda tensor: self._moved(tensor, made, sources))
        finally:  # also after an error: copies that are queued already read their sources
            done.record(self._stream)
            self._pending.append((done, sources))
        return _Copied(moved, made, done)

    def deliver(self, copied: _Copied[T]) -> T:
        """Make the consumer's stream wait for this copy (not for the next one, which is queued already)."""
        consumer = torch.cuda.current_stream(self._device)
        consumer.wait_event(copied.done)
        for tensor in copied.made:
            tensor.record_stream(consumer)
        # From here on only the consumer holds the batch: when it is dropped there, its memory is free.
        batch, copied.batch, copied.made = copied.batch, None, []
        return cast(T, batch)

    def finish(self) -> None:
        """Release all sources, once nothing reads them any more."""
        while self._pending:
            self._pending.popleft()[0].synchronize()

    def _release(self) -> None:
        while len(self._pending) > _MAX_PENDING or (self._pending and self._pending[0][0].query()):  # type: ignore[no-untyped-call]
            self._pending.popleft()[0].synchronize()

    def _moved(self, tensor: Tensor, made: list[Tensor], sources: list[Tensor]) -> Tensor:
        strided = tensor.layout is torch.strided
        if tensor.device.type == "cpu":
            # A copy from pageable memory would block the host until the consumer's queued work is done.
            source = tensor.pin_memory() if strided and tensor.numel() and not tensor.is_pinned() else tensor
            sources.append(source)
        else:
            source = tensor
        placed = self._scale(source.to(self._device, non_blocking=True))
        if placed is tensor:
            return tensor
        if tensor.is_cuda and strided:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))  # read here, perhaps freed by the consumer
        if strided:
            made.append(placed)
        return placed


def _close(batches: Iterator[object], loader: object) -> None:
    """Close the loader's iterator now rather than when it is collected, unless the loader is its own iterator."""
    close = getattr(batches, "close", None)
    if callable(close) and (batches is not loader or isinstance(batches, GeneratorType)):
        close()


def _resolve_device(device: torch.device | str | int | None) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None:
        return torch.device("cuda", torch.cuda.current_device()) if count else torch.device("cpu")
    try:
        resolved = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError) as error:
        refuse("device", f"'cuda', 'cuda:0', 'cpu', 'mps', ... or None ({error})", device)
    if resolved.type != "cuda":
        return resolved
    if not count:
        refuse("device", "'cpu' or None, which picks the best device (torch sees no CUDA device)", device)
    given = cast(int | None, resolved.index)  # the stub lacks None, the index of plain 'cuda'
    index = torch.cuda.current_device() if given is None else given
    if index >= count:
        refuse("device", f"'cuda:0' to 'cuda:{count - 1}' (torch sees {count} CUDA devices)", device)
    return torch.device("cuda", index)


def _unscaled(tensor: Tensor) -> Tensor:
    return tensor
