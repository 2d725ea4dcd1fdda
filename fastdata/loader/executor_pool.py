"""ExecutorPool: idle executors of a loader are kept for the next iterator, and all end with the loader.

An executor belongs to the process that made it. In a fork of that, everything here begins anew.
"""

from __future__ import annotations

import multiprocessing
import os
import weakref
from typing import Any

from fastdata.loader.epoch_iterator import EpochIterator
from fastdata.loader.executor import Executor, InlineExecutor
from fastdata.loader.process_executor import ProcessExecutor
from fastdata.loader.sample_spec import SampleSpec
from fastdata.loader.settings import Settings
from fastdata.loader.thread_executor import ThreadExecutor
from fastdata.signals import deferred_signals_in_finalizer


class ExecutorPool:
    """The executors of a loader.

    Args:
        spec: how samples are made.
        settings: of the loader.
    """

    def __init__(self, spec: SampleSpec, settings: Settings) -> None:
        self._spec, self._settings = spec, settings
        self._idle: list[Executor] = []
        self._iterators: weakref.WeakSet[EpochIterator] = weakref.WeakSet()
        self._closed = False

    def __reduce__(self) -> str:
        raise TypeError(
            "a fastdata.DataLoader holds processes and cannot be pickled: make one where it is used, and carry its "
            "state_dict() there"
        )

    def take(self) -> Executor | None:
        """An idle executor, or a new one, so that two iterators are independent; None where nothing is made."""
        self._closed = False
        settings = self._settings
        if not self._spec.image and not self._spec.values:
            return None
        while self._idle:
            executor = self._idle.pop()
            if _is_ours(executor):
                return executor
        if not settings.num_workers:
            return InlineExecutor(self._spec)
        if settings.worker_mode == "thread":
            return ThreadExecutor(self._spec, settings.num_workers, settings.prefetch_factor)
        context = context_of(settings.context)
        return ProcessExecutor(self._spec, settings.num_workers, settings.prefetch_factor, context)

    def give_back(self, executor: Executor | None, *, reusable: bool) -> None:
        """Called once by each iterator, when it is done with its executor."""
        if executor is None or not _is_ours(executor):
            return
        # One in the caller has nothing worth keeping.
        if self._closed or not reusable or not self._settings.persistent_workers or executor.owner is None:
            executor.close()
        else:
            executor.cancel()
            self._idle.append(executor)

    def watch(self, iterator: EpochIterator) -> None:
        """Remember an iterator, which ends when the loader is closed."""
        self._iterators.add(iterator)

    def close(self) -> None:
        """End all iterators and executors; the loader can be iterated again."""
        self._closed = True
        _end(self._idle, self._iterators)

    def end_with(self, loader: object) -> None:
        """Close when nobody holds the loader any more, and when Python ends.

        What is kept for that must not lead to the user's callables: a `collate_fn` may be a method of what holds the
        loader, which then lived for ever.
        """
        weakref.finalize(loader, _forgotten, self._idle, self._iterators)


def _end(idle: list[Executor], iterators: weakref.WeakSet[EpochIterator]) -> None:
    for iterator in list(iterators):
        iterator.cancel()
    while idle:
        executor = idle.pop()
        if _is_ours(executor):
            executor.close()


def _forgotten(idle: list[Executor], iterators: weakref.WeakSet[EpochIterator]) -> None:
    with deferred_signals_in_finalizer():
        _end(idle, iterators)


def _is_ours(executor: Executor) -> bool:
    return executor.owner in (None, os.getpid())


def context_of(given: Any) -> Any:
    """The context that was given, or the platform's default, which the program may still want to set (asking would)."""
    if given is not None:
        return given
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return multiprocessing.get_context(method)
