"""How many cores this process may use, and how many workers that makes."""

from __future__ import annotations

import contextlib
import math
import os

from fastdata.world import World


def available_cpus() -> int:
    """The cores this process may use: its affinity, and the share that a container grants it."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
        if quota != "max":
            count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


def default_workers() -> int:
    """The workers of a process where nobody said how many: its share of the cores, which all local ranks may use."""
    return max(1, available_cpus() // World.local_world_size())
