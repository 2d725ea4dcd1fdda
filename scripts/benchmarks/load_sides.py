"""The sides that `scripts/bench load` can measure, and the ratios that it tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OWN = ""
TASKS = ("train", "eval", "raw")
SIZES = ("256", "original")


@dataclass(frozen=True, slots=True)
class Side:
    """One loader with its settings.

    Attributes:
        name: as in the table and for `--only`.
        script: the program in `sides/`.
        data: which of the prepared data sets it reads.
        tasks, sizes: where it takes part.
        peer: whose Python runs it (`--peer NAME=PYTHON`); fastdata's own where it is empty.
        options: what the program is given besides the general settings.
        workers: how many, if not as many as asked for.
    """

    name: str
    script: str
    data: str
    tasks: tuple[str, ...] = ("train", "eval")
    sizes: tuple[str, ...] = SIZES
    peer: str = OWN
    options: dict[str, Any] = field(default_factory=dict)
    workers: int | None = None

    def takes(self, task: str, size: str) -> bool:
        return task in self.tasks and size in self.sizes


def _ours(name: str, data: str = "lmdb", **rest: Any) -> Side:
    options = {"antialias": True, "exact": False} | rest.pop("options", {})
    return Side(name, "side_fastdata", data, options=options, **rest)


_LINEAR = {"antialias": False}
_TRAIN: Any = {"tasks": ("train",)}
_PIL = {"antialias": True, "tuned": False}

SIDES = (
    _ours("fastdata", tasks=TASKS),
    _ours("fastdata-linear", options=_LINEAR, tasks=("train", "raw")),
    _ours("fastdata-exact", options={"exact": True}, sizes=("original",)),
    _ours("fastdata-1worker", workers=1),
    _ours("fastdata-hdf5", "h5", sizes=("256",)),
    _ours("fastdata-tar", "tar", sizes=("256",)),
    _ours("fastdata-raw", "raw", tasks=("raw",)),
    _ours("fastdata-raw-linear", "raw", tasks=("raw",), options=_LINEAR),
    Side("floor", "side_floor", "lmdb", options={"antialias": True}),
    Side("floor-linear", "side_floor", "lmdb", options=_LINEAR, **_TRAIN),
    Side("torch-fastdata", "side_torch", "lmdb", options={"antialias": True, "opencv": False, "tuned": True}),
    Side("torch-opencv", "side_torch", "files", options={"opencv": True, "tuned": False}),
    Side("torch-opencv-tuned", "side_torch", "files", options={"opencv": True, "tuned": True}),
    Side("torchvision", "side_torchvision", "files", peer="torchvision", options=_PIL),
    Side("torchvision-originals", "side_torchvision", "originals", peer="torchvision", options=_PIL, sizes=("256",)),
    Side("torchvision-tuned", "side_torchvision", "files", peer="torchvision", options=_PIL | {"tuned": True}),
    Side("torchvision-tuned-linear", "side_torchvision", "files", peer="torchvision",
         options=_LINEAR | {"tuned": True}, **_TRAIN),
    Side("webdataset", "side_webdataset", "shards", peer="webdataset", options={"antialias": True, "opencv": False}),
    Side("webdataset-opencv", "side_webdataset", "shards", options={"opencv": True}),
    Side("ffcv", "side_ffcv", "ffcv-jpg", peer="ffcv", options={"write_mode": "jpg"}, tasks=TASKS),
    Side("ffcv-raw", "side_ffcv", "ffcv-raw", peer="ffcv", options={"write_mode": "raw"}, tasks=("raw",)),
    Side("dali", "side_dali", "files", peer="dali", options=_LINEAR),
    Side("dali-antialias", "side_dali", "files", peer="dali", options={"antialias": True}, **_TRAIN),
    Side("spdl", "side_spdl", "files", peer="spdl"),
)  # fmt: skip

PEERS = tuple(dict.fromkeys(side.peer for side in SIDES if side.peer != OWN))

# Each as "this rate / that rate", taken repeat by repeat, where both were measured.
RATIOS = (
    ("fastdata", "ffcv"), ("fastdata-linear", "ffcv"),
    ("fastdata", "torchvision"), ("fastdata", "torchvision-originals"), ("fastdata", "torchvision-tuned"),
    ("fastdata-linear", "torchvision-tuned-linear"),
    ("fastdata-linear", "dali"), ("fastdata", "dali"), ("fastdata", "dali-antialias"),
    ("fastdata", "webdataset"), ("fastdata-linear", "webdataset-opencv"), ("fastdata-linear", "torch-opencv"),
    ("fastdata-linear", "torch-opencv-tuned"),
    ("fastdata-linear", "spdl"), ("fastdata", "spdl"),
    ("fastdata", "torch-fastdata"),
    ("fastdata", "floor"), ("fastdata-linear", "floor-linear"), ("fastdata", "fastdata-1worker"),
    ("fastdata-hdf5", "fastdata"), ("fastdata-tar", "fastdata"), ("fastdata", "fastdata-exact"),
    ("fastdata-exact", "ffcv"),
    ("fastdata-raw", "fastdata"), ("fastdata-raw-linear", "fastdata-linear"),
    ("fastdata-raw", "ffcv-raw"), ("fastdata-raw-linear", "ffcv-raw"),
)  # fmt: skip


def chosen(task: str, size: str, only: str | None) -> list[Side]:
    """The sides of a task, or those of them that are named, with commas between."""
    sides = [side for side in SIDES if side.takes(task, size)]
    if only is None:
        return sides
    names = [name.strip() for name in only.split(",")]
    unknown = sorted(set(names) - {side.name for side in sides})
    if unknown:
        raise SystemExit(
            f"--only: {', '.join(unknown)}: not measured with --task {task} --size {size}; "
            f"these are: {', '.join(side.name for side in sides)}"
        )
    return [side for side in sides if side.name in names]
