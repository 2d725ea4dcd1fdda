"""How long the command and `import fastdata` take in a fresh process, and that they load nothing heavy."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

from fastdata.cli.measure import Spread

_CASES = {
    "python -c pass": ["-c", "pass"],
    "import fastdata": ["-c", "import fastdata"],
    "fastdata --help": ["-m", "fastdata", "--help"],
    "fastdata convert --help": ["-m", "fastdata", "convert", "--help"],
    "fastdata info --help": ["-m", "fastdata", "info", "--help"],
}
_HEAVY = ("torch", "cv2", "numpy", "lmdb", "h5py", "PIL", "rich")
_LOADED = {
    "import fastdata": "import fastdata",
    "fastdata --help": "from fastdata.cli import main; main(['--help'])",
}


def arguments(parser: argparse.ArgumentParser, cores: int) -> None:  # noqa: ARG001 - nothing here depends on the cores
    parser.set_defaults(repeats=15)


def take(options: argparse.Namespace, scratch: str) -> dict[str, Any]:  # noqa: ARG001 - nothing is written
    seconds: dict[str, list[float]] = {name: [] for name in _CASES}
    for repeat in range(options.repeats + 1):
        for name, case in _CASES.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, *case], stdout=subprocess.DEVNULL, check=True)
            if repeat:  # the first round fills the page cache and writes byte code
                seconds[name].append(time.perf_counter() - begin)
    spreads = {name: Spread.of(values) for name, values in seconds.items()}
    loaded = {name: _loaded(code) for name, code in _LOADED.items()}
    return {
        "figure": "start",
        "settings": {"repeats": options.repeats},
        "cache": "warm: each command runs once before",
        "seconds": {name: spread.facts() for name, spread in spreads.items()},
        "loaded": loaded,
        "columns": ["a fresh process", "median s", "lowest", "highest", "heavy imports"],
        "rows": [
            [
                name,
                *(f"{v:.3f}" for v in (s.median, s.low, s.high)),
                ", ".join(loaded[name]) or "none" if name in loaded else "",
            ]
            for name, s in spreads.items()
        ],
    }


def _loaded(code: str) -> list[str]:
    """Which heavy packages a fresh process has imported after this code."""
    code = f"import sys; {code}; print(*[n for n in {_HEAVY!r} if n in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.split()
