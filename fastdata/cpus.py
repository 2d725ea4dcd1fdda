"""How many cores this process may use."""

from __future__ import annotations

import contextlib
import math
import os


def available_cpus() -> int:
    """The cores this process may use: its affinity, and the share that a container grants it."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
        if quota != "max":
            count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)
