"""Batch: what has come of one batch so far. The iterator that asked for it adds results until it is finished."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdata.formats.locations import Locations
from fastdata.loader.buffers import Buffer
from fastdata.loader.executor import BatchResult
from fastdata.loader.sample_log import Failure, Remark


@dataclass(slots=True, eq=False)
class Batch:
    """A batch under way.

    Attributes:
        index: its number in the epoch.
        locations: a row for each sample; replaced where one failed and is skipped.
        missing: the rows that were asked for and have not come.
        finished: it can be handed out, or its failures raised.
        buffer: its memory.
        samples: what was made for a `collate_fn`, by row.
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
    failures: list[Failure] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)
    skipped: list[tuple[int, int, str, str]] = field(default_factory=list)

    def take(self, result: BatchResult) -> None:
        """Add a result."""
        self.missing[result.rows] = False
        self.failures += result.failures
        self.remarks += result.remarks
        if result.samples is not None:
            self.samples.update(zip(result.rows.tolist(), result.samples, strict=True))
