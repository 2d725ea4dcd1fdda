"""What is printed with every figure: its spread over repeats, the machine, versions and the state of the page cache."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from fastdata.cpus import available_cpus


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over several repeats."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))

    def facts(self) -> dict[str, float]:
        return asdict(self)


def machine() -> dict[str, object]:
    """The machine that a figure belongs to. No name and no user: figures get published."""
    return {
        "cpu": _cpu(),
        "cores": available_cpus(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """The versions that a figure depends on."""
    import cv2
    import numpy as np

    import fastdata

    return {
        "fastdata": fastdata.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "opencv": cv2.__version__,
    }


def engines() -> dict[str, str]:
    """The engines that this installation uses, each with its version."""
    from fastdata.codec import jpeg
    from fastdata.formats import checksum
    from fastdata.transforms.engines import best_engine

    return {"JPEGs decoded": jpeg.engine(), "shrunk": best_engine(torch=False).name, "checksums": checksum.engine()}


def engine_line(engines: Mapping[str, str]) -> str:
    """What `engines` returns, in one line."""
    return ", ".join(f"{what} with {name}" for what, name in engines.items())


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 0


def drop_cached_pages(paths: Sequence[str]) -> bool:
    """Ask the kernel to drop the pages of these files (mapped pages stay); False if the system cannot do that."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages not yet on disk would stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return True


@contextlib.contextmanager
def one_opencv_thread() -> Iterator[None]:
    """Use one OpenCV thread per call, so that the command's own threads alone determine how many cores work."""
    import cv2

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)
