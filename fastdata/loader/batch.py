"""Batch: what has come of one batch so far. The iterator that asked for it adds results until it is finished."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.locations import Locations
from fastdata.loader.buffers import Buffer
from fastdata.loader.executor import BatchResult
from fastdata.loader.sample_log import Failure, Remark, Values


@dataclass(slots=True, eq=False)
class Batch:
    """A batch under way.

    Attributes:
        index: its number in the epoch.
        locations: a row for each sample; replaced where one failed and is skipped.
        missing: the rows that were asked for and have not come.
        finished: it can be handed out, or its failures raised.
        buffer: its memory.
        samples: images for a `collate_fn`, by row.
        values: what samples hold beside their images, by its name, then by row.
        failures: of the samples that were tried last.
        remarks: what decoders said of samples that were made.
        attempts: how many replacements were tried, by row.
        skipped: (attempt, row, key, reason) of samples that were replaced.
    """

    index: int
    locations: Locations
    missing: NDArray[np.bool_]
    finished: bool = False
    buffer: Buffer | None = None
    samples: dict[int, Any] = field(default_factory=dict)
    values: dict[str, dict[int, Any]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    skipped: list[tuple[int, int, str, str]] = field(default_factory=list)

    def take(self, result: BatchResult) -> None:
        """Add a result."""
        made = result.made
        self.missing[result.rows] = False
        self.failures += made.failures
        self.remarks += made.remarks
        if made.samples is not None:
            self.samples.update(zip(result.rows.tolist(), made.samples, strict=True))
        for name, values in made.values.items():
            self.values.setdefault(name, {}).update(zip(result.rows.tolist(), values, strict=True))

    def columns(self) -> Values:
        """What the samples hold beside their images, in their order."""
        rows = range(len(self.locations))
        return {name: [values[row] for row in rows] for name, values in self.values.items()}
