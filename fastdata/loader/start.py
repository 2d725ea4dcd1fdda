"""How the loader starts its worker processes, and what it says where they cannot be started or given their work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from fastdata.errors import OptionError
from fastdata.loader import worker
from fastdata.loader.sample_spec import SampleSpec
from fastdata.processes import context as processes
from fastdata.processes.main_module import can_import_main, needs_main
from fastdata.processes.worker import WorkerProcess
from fastdata.sharedmem import SharedBlock


def check_main(spec: SampleSpec, method: str) -> bool:
    """Whether workers must import the main module to be given this spec.

    Raises:
        OptionError: they must, and cannot.
    """
    if method == "fork":
        return False
    needed = needs_main(spec)
    if can_import_main():
        return needed is not False
    if needed:
        others = "multiprocessing_context='fork' or " if hasattr(os, "fork") else ""
        raise OptionError(
            "a transform is defined in a main module that worker processes cannot import (python -c, standard input, "
            "a notebook, a package's __main__): put it into a module of its own, which is imported here, or use "
            f"{others}worker_mode='thread'"
        )
    return False


def start_worker(
    context: BaseContext, block: SharedBlock, spec: SampleSpec, others: Sequence[Connection], *, main: bool
) -> WorkerProcess:
    """A worker process that makes samples in this block.

    Args:
        context: what starts it.
        block: the shared memory for the batches.
        spec: how samples are made.
        others: the parent's ends of other workers' connections.
        main: whether it must import the main module.

    Raises:
        OptionError: the spec cannot be pickled, or this process may have no children.
        OSError: the system gives no process, memory or descriptors for it.
    """
    if not processes.may_have_children():
        raise OptionError(
            "this process is a daemon (a worker of another loader), which may start no processes: use num_workers=0 "
            "or worker_mode='thread' here"
        )
    try:
        return processes.start(context, worker.run, (block, spec), main=main, others=others)
    except processes.NotPicklableError as error:
        raise OptionError(
            f"a transform cannot be sent to a worker process ({error}); use a function or class that a module "
            "defines (no lambda, nothing local), or multiprocessing_context='fork'"
        ) from error
