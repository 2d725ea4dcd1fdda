"""Crews of a loader: those that nobody uses at the moment are kept for the next iterator, and all end with the loader.

A crew belongs to the process that made it. In a fork of that, everything here begins anew.
"""

from __future__ import annotations

import multiprocessing
import os
import weakref
from typing import Any

from fastdata.loader.crew import ClerkCrew, Crew, SoloCrew
from fastdata.loader.iteration import Iteration
from fastdata.loader.processes import ProcessCrew
from fastdata.loader.sample_maker import SampleSpec
from fastdata.loader.settings import Settings
from fastdata.loader.threads import ThreadCrew
from fastdata.signals import deferred_signals_in_finalizer


class Crews:
    """The crews of a loader.

    Args:
        spec: how samples are made.
        settings: of the loader.
        batch_size: the most samples that a batch can have.
    """

    def __init__(self, spec: SampleSpec, settings: Settings, batch_size: int) -> None:
        self._spec, self._settings, self._batch_size = spec, settings, batch_size
        self._idle: list[Crew] = []
        self._iterations: weakref.WeakSet[Iteration] = weakref.WeakSet()
        self._closed = False

    def __reduce__(self) -> str:
        raise TypeError(
            "a fastdata.DataLoader holds processes and cannot be pickled: make one where it is used, and carry its "
            "state_dict() there"
        )

    def take(self) -> Crew:
        """An idle crew, or a new one: two iterators at once are independent."""
        self._closed = False
        while self._idle:
            crew = self._idle.pop()
            if _is_ours(crew):
                return crew
        return self._new()

    def _new(self) -> Crew:
        settings, spec = self._settings, self._spec
        collating = settings.collate_fn is not None
        if not settings.selection.image:
            return ClerkCrew(spec, collating=collating)
        if not settings.num_workers:
            return SoloCrew(spec, collating=collating)
        if settings.worker_mode == "thread":
            return ThreadCrew(spec, settings.num_workers, settings.prefetch_factor, collating=collating)
        return ProcessCrew(
            spec, self._batch_size, settings.num_workers, settings.prefetch_factor, context_of(settings.context),
            collating=collating,
        )  # fmt: skip

    def give_back(self, crew: Crew, usable: bool) -> None:
        """Called once by each iterator, when it is done with its crew."""
        if not _is_ours(crew):
            return
        if self._closed or not usable or not self._settings.persistent_workers:
            crew.stop()
            return
        crew.rest()
        if crew.owner is not None:  # the caller's own is nothing to keep
            self._idle.append(crew)

    def watch(self, iteration: Iteration) -> None:
        """Remember an iterator, which ends when the loader is closed."""
        self._iterations.add(iteration)

    def close(self) -> None:
        self._closed = True
        _end(self._idle, self._iterations)

    def end_with(self, loader: object) -> None:
        """Close when nobody holds the loader any more, and when Python ends.

        What is kept for that must not lead to the user's callables: a `collate_fn` may be a method of what holds the
        loader, which then lived for ever.
        """
        weakref.finalize(loader, _forgotten, self._idle, self._iterations)


def _end(idle: list[Crew], iterations: weakref.WeakSet[Iteration]) -> None:
    for iteration in list(iterations):
        iteration.cut_off()
    while idle:
        crew = idle.pop()
        if _is_ours(crew):
            crew.stop()


def _forgotten(idle: list[Crew], iterations: weakref.WeakSet[Iteration]) -> None:
    with deferred_signals_in_finalizer():
        _end(idle, iterations)


def _is_ours(crew: Crew) -> bool:
    return crew.owner in (None, os.getpid())


def context_of(given: Any) -> Any:
    """The context that was given, or the platform's default, which the program may still want to set (asking would)."""
    if given is not None:
        return given
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return multiprocessing.get_context(method)
