"""Passes: which epoch each iterator gives, and where a loader stands.

In: iterators that begin, and what they hand out. Out: positions, and states of them as plain values. An iterator claims
its epoch when the first batch is asked of it: one from which nothing was drawn uses up none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastdata.checks import flag, integer
from fastdata.errors import OptionError
from fastdata.loader.schedule import Schedule, split_of
from fastdata.loader.settings import Settings

_STATE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands: so many samples of an epoch were handed out, on all ranks together; `over`: all of them.

    Of a batch_sampler's batches, so many batches.
    """

    epoch: int = 0
    consumed: int = 0
    over: bool = False

    def state(self, settings: Settings, fingerprint: str, samples: int | None) -> dict[str, Any]:
        """As plain JSON values."""
        order = _order(settings, fingerprint, samples)
        return order | {"epoch": self.epoch, "consumed": self.consumed, "over": self.over}

    @classmethod
    def load(cls, state: Any, settings: Settings, fingerprint: str, samples: int | None) -> Position:
        """The position that a state stands for, with these settings.

        Raises:
            OptionError: the state is of other data, another order, or does not fall between two global batches.
        """
        wanted = _order(settings, fingerprint, samples)
        if not isinstance(state, dict) or "version" not in state:
            raise OptionError(f"not a state of fastdata.DataLoader: {state!r:.200}")
        for name, here in wanted.items():
            if state.get(name) != here:
                raise OptionError(
                    f"the state has {name} {state.get(name)!r}, this loader {here!r}: resume with the same data, seed, "
                    "shuffle, repeats, indices, sampler, drop_last, pad and even"
                )
        epoch, consumed = (integer(f"the state's {name}", state.get(name), 0) for name in ("epoch", "consumed"))
        over = flag("the state's over", state.get("over"))
        position = cls(epoch, consumed, over)
        if consumed % settings.global_batch and not over:
            raise OptionError(
                f"{consumed} samples were consumed, which is not a multiple of batch_size * world_size = "
                f"{settings.global_batch}: resume with the same global batch"
            )
        if settings.sampled or samples is None:
            return position
        split, batches = split_of(settings, samples), position.batches(settings)
        if batches > split.batches:
            raise OptionError(f"{consumed} samples were consumed, {batches} batches; an epoch has {split.batches} here")
        # Without `pad` another rank may have had its last batch before this one has.
        return cls(epoch, consumed, over=batches >= split.batches_of(settings.world.rank))

    def batches(self, settings: Settings) -> int:
        """The batches that were handed out on each rank."""
        return -(-self.consumed // settings.global_batch)


def _order(settings: Settings, fingerprint: str, samples: int | None) -> dict[str, Any]:
    """What the batches depend on; the caller must ensure that a sampler gives the same again."""
    return {
        "version": _STATE_VERSION,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
        "repeats": settings.repeats,
        "samples": samples,
        # False or True, as in states that were saved before there were batch samplers.
        "sampler": "batch_sampler" if settings.batch_sampler is not None else settings.sampler is not None,
        "indices": settings.chosen,
        "drop_last": settings.drop_last,
        "pad": settings.pad,
        "even": settings.even,
        "fingerprint": fingerprint,
    }


@dataclass(slots=True, eq=False)
class Start:
    """A place to begin a pass at; one iterator claims it, and those that began there, too, come later."""

    position: Position
    claimed: bool = False


class Passes:
    """The passes of a loader: the next one's place, and what was handed out by the iterator that began last.

    Attributes:
        position: where the loader stands.
    """

    def __init__(self) -> None:
        self.position = Position()
        self._next = Start(self.position)
        self._latest: Start | None = None

    @property
    def start(self) -> Start:
        """Where an iterator that is made now begins."""
        return self._next

    def claim(self, start: Start) -> Start:
        """Begin a pass at a position: at the next one if another iterator has started there meanwhile."""
        if start.claimed:
            start = self._next
        start.claimed = True
        if start is self._next:
            self._next = Start(Position(start.position.epoch + 1))
        self._latest, self.position = start, start.position
        return start

    def stands(self, start: Start, position: Position) -> None:
        """What the pass that began there has handed out."""
        if start is self._latest:
            self.position = position

    def name(self, epoch: int) -> None:
        """The next pass is this epoch, from its start, or from the place in it that was loaded."""
        following = self._next.position
        self.load(following if following.epoch == epoch else Position(epoch))

    def load(self, position: Position) -> None:
        """The next pass begins here."""
        self._next, self._latest, self.position = Start(position), None, position


class Pass:
    """One iterator's pass.

    Args:
        passes: of its loader.
        plan: makes the batches from a position on.

    Attributes:
        schedule: its batches.
    """

    def __init__(self, passes: Passes, plan: Callable[[Position], Schedule]) -> None:
        self._passes, self._plan, self._start = passes, plan, passes.start
        self.schedule = plan(self._start.position)

    def begin(self) -> None:
        """Claim the epoch, which may turn out to be a later one than that in which the iterator was made."""
        start = self._passes.claim(self._start)
        if start is not self._start:
            self._start, position = start, start.position
            moved = None if position.consumed or position.over else self.schedule.moved(position.epoch)
            self.schedule = moved or self._plan(position)

    def stands(self, batches: int, *, over: bool) -> None:
        """So many batches of the epoch were handed out."""
        plan = self.schedule
        self._passes.stands(self._start, Position(plan.epoch, plan.consumed(batches), over))

    def end(self) -> None:
        """The iterator has said that nothing more comes."""
        self._passes.stands(self._start, Position(self.schedule.epoch + 1))
