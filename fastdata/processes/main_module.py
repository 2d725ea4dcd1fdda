"""Start workers by spawn or forkserver without the user's main module, unless their arguments need it.

multiprocessing imports it in each child: a training script imports torch at its top, which costs a second and 150 MB in
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
    """Whether unpickling needs `__main__`; None if that cannot be determined beforehand."""
    try:
        blob = pickle.dumps(value)
    except Exception:  # locks and shared memory can be pickled only while a process is being started
        return None
    return b"__main__" in blob and any(given == "__main__" for _, given, _ in pickletools.genops(blob))


def can_import_main() -> bool:
    """Whether multiprocessing can import the main module in the processes that it spawns."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).rpartition(".")[2] != "__main__"
    path = getattr(main, "__file__", None)
    home = processes.ORIGINAL_DIR or ""  # type: ignore[attr-defined]
    return path is not None and os.path.isfile(os.path.join(home, path))


@contextmanager
def left_out(processes_named: str) -> Iterator[None]:
    """In this block, processes of this name start without the main module.

    `__main__` stays in `sys.modules`, because other threads look there when they pickle what the script defines.
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
