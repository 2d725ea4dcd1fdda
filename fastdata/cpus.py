"""The number of cores that this process may use, and the default number of workers."""

from __future__ import annotations

import contextlib
import math
import os

from fastdata.world import World


def available_cpus() -> int:
    """The number of cores this process may use, by its affinity and its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
        if quota != "max":
            count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


def default_workers() -> int:
    """The default number of workers of a process: its share of the cores, which are divided among all local ranks."""
    return max(1, available_cpus() // World.local_world_size())
