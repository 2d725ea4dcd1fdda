"""What `scripts/bench load` tells: rates, processor time, ratios, and in which environment each side ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from load_process import Epoch
from load_sides import RATIOS

from fastdata.cli.measure import Spread


def told(
    settings: dict[str, Any],
    epochs: Mapping[str, Sequence[Epoch]],
    facts: Mapping[str, Any],
    missing: Mapping[str, str],
) -> dict[str, Any]:
    """The result as the script prints it, from the epochs of every side."""
    ratios = {f"{one} / {other}": _ratio(epochs[one], epochs[other]) for one, other in RATIOS
              if one in epochs and other in epochs}  # fmt: skip
    return {
        "figure": "loading",
        "settings": settings,
        "cache": "warm: every side has made one epoch before the first that counts",
        "rates": {name: [epoch.rate for epoch in each] for name, each in epochs.items()},
        "processor_seconds": {name: [epoch.processor for epoch in each] for name, each in epochs.items()},
        "ratios": {name: {"rate": rate.facts(), "processor": used.facts()} for name, (rate, used) in ratios.items()},
        "sides": facts,
        "not_measured": missing,
        "columns": ["images/s", "median", "lowest", "highest", "CPU us/image"],
        "rows": [[name, *_rates(each), f"{_used(each) * 1e6:,.0f}"] for name, each in epochs.items()],
        "more": [_ratio_table(ratios), _environments(facts), _reasons(missing)],
    }


def _ratio(one: Sequence[Epoch], other: Sequence[Epoch]) -> tuple[Spread, Spread]:
    """Repeat by repeat: how many times the rate, and how many times less processor time."""
    pairs = list(zip(one, other, strict=True))
    rate = Spread.of([a.rate / b.rate for a, b in pairs])
    # Processor time comes in ticks: an epoch of a few samples may have used none.
    return rate, Spread.of([b.processor / a.processor if a.processor else 0.0 for a, b in pairs])


def _rates(epochs: Sequence[Epoch]) -> list[str]:
    spread = Spread.of([epoch.rate for epoch in epochs])
    return [f"{value:,.0f}" for value in (spread.median, spread.low, spread.high)]


def _used(epochs: Sequence[Epoch]) -> float:
    return Spread.of([epoch.processor for epoch in epochs]).median


def _ratio_table(ratios: Mapping[str, tuple[Spread, Spread]]) -> dict[str, Any]:
    return {
        "columns": ["ratio of rates", "median", "lowest", "highest", "by CPU time"],
        "rows": [
            [name, *(f"{value:.2f}" for value in (rate.median, rate.low, rate.high, used.median))]
            for name, (rate, used) in ratios.items()
        ],
    }


def _environments(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Sides that ran in the same one stand together."""
    sides: dict[str, list[str]] = {}
    for name, fact in facts.items():
        sides.setdefault(", ".join(f"{package} {version}" for package, version in fact.items()), []).append(name)
    return {"columns": ["environment", "of"], "rows": [[packages, ", ".join(of)] for packages, of in sides.items()]}


def _reasons(missing: Mapping[str, str]) -> dict[str, Any]:
    """The last line of each: the rest is in the JSON."""
    return {
        "columns": ["not measured", "why"],
        "rows": [[name, why.strip().rpartition("\n")[2]] for name, why in missing.items()],
    }
