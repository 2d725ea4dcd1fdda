"""The user's main module, which workers started by spawn or forkserver do without unless they are given parts of it.

multiprocessing imports it in each child: a training script imports torch at its top, which is a second and 150 MB for
every worker that only decodes.
"""

from __future__ import annotations

import os
import pickle
import pickletools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import process as processes
from multiprocessing import spawn
from typing import Any


def needs_main(value: object) -> bool | None:
    """Whether unpickling needs `__main__`; None where that cannot be determined beforehand."""
    try:
        blob = pickle.dumps(value)
    except Exception:  # locks and shared memory pickle while a process is being started, and only then
        return None
    return b"__main__" in blob and any(given == "__main__" for _, given, _ in pickletools.genops(blob))


def can_import_main() -> bool:
    """Whether multiprocessing tells the processes that it spawns where the main module is."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).rpartition(".")[2] != "__main__"
    path = getattr(main, "__file__", None)
    home = processes.ORIGINAL_DIR or ""  # type: ignore[attr-defined]
    return path is not None and os.path.isfile(os.path.join(home, path))


@contextmanager
def left_out(processes_named: str) -> Iterator[None]:
    """Prepare the processes that have this name without the main module.

    Not by another `__main__` in `sys.modules`: other threads look there, whenever they pickle what the script defines.
    """
    original = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if name == processes_named:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = original
