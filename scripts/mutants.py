"""Break the package in one place after the other, and see that its tests notice.

    scripts/check --mutants            all of the table
    scripts/check --mutants margin     those whose name contains a word

Each mutant is a copy of the package in a temporary folder in which one text is replaced by another; it is killed when
the tests named beside it fail there, which must pass where nothing is replaced. What survives, and a text that does not
stand in its file exactly once, fails the script: correct the table when you change that code. The table is short: what
would go wrong silently.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("converters", "fastdata", "tests", "pyproject.toml")
# A mutant that hangs is killed, too.
LIMIT_S = 120
# pytest's status when all tests passed, and when they ran and some failed.
PASSED, FAILED = 0, 1


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


CROP = "fastdata/codec/cropindex.py"
EDGES = ("tests/test_cropindex_edges.py",)
ORDER = "fastdata/order.py"
ORDERED = ("tests/test_order.py",)
BUFFERS = "fastdata/loader/buffers.py"
LENT = ("tests/test_buffers.py",)
SAMPLES = "fastdata/loader/sample_maker.py"
BY_32 = ("tests/test_loader_parts.py::test_images_are_prepared_32_at_a_time_and_then_decoded",)

MUTANTS = (
    Mutant("crop: narrow cuts stay narrow", CROP, "<= 4 * scale", "<= 0 * scale", EDGES),
    Mutant("crop: narrow cuts of 4 pixels stay narrow", CROP, "<= 4 * scale", "<= 3 * scale", EDGES),
    Mutant("crop: no left margin", CROP, "max(box[0] - scale, 0)", "box[0]", EDGES),
    Mutant("crop: no top margin", CROP, "max(box[1] - scale, 0)", "box[1]", EDGES),
    Mutant("crop: no right margin", CROP, "(box[2] + scale)", "box[2]", EDGES),
    Mutant("crop: no bottom margin", CROP, "(box[3] + scale)", "box[3]", EDGES),
    Mutant("crop: markers keep their numbers", CROP, "data[marks.ravel()] = _NUMBERS[: marks.size]", "pass", EDGES),
    Mutant("crop: the last marker is no EOI", CROP, "data[-1] = 0xD9", "pass", ("tests/test_cropindex.py",)),
    Mutant(
        "order: the second mixing repeats the first", ORDER, "first, stop, SHIFTED)", "first, stop, WINDOWS)", ORDERED
    ),
    Mutant(
        "order: runs are not permuted",
        ORDER,
        "permutation(seed, epoch, 0, -(-count // self._run))",
        "np.arange(-(-count // self._run))",
        ORDERED,
    ),
    Mutant(
        "order: ranks overlap by a sample", ORDER, "start += rank * share + ", "start += rank * (share - 1) + ", ORDERED
    ),
    Mutant("order: dealt positions are not dealt", ORDER, "size * self.world_size, self.world_size)", "size)", ORDERED),
    Mutant(
        "buffers: lent slots are used again",
        BUFFERS,
        "self._watched[offset] = weakref.ref(memory, lambda _: returned.append(offset))",
        "returned.append(offset); self._watched[offset] = weakref.ref(memory)",
        LENT,
    ),
    Mutant("buffers: they grow past their bound", BUFFERS, "len(self._lent) >= self._most_lent", "False", LENT),
    Mutant(
        "buffers: past the bound nothing is copied",
        BUFFERS,
        "return buffer.pixels.copy()",
        "return buffer.pixels",
        LENT,
    ),
    Mutant(
        "batch: one image is prepared at a time",
        SAMPLES,
        "_PREPARED, _PREPARED_BYTES = 32,",
        "_PREPARED, _PREPARED_BYTES = 1,",
        BY_32,
    ),
)


def copied(folder: Path) -> Path:
    """Copy what the tests need into a new folder."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def replaced(folder: Path, mutant: Mutant) -> str:
    """Write the mutant into a copy; returns what is wrong with its line of the table, or nothing."""
    path = folder / mutant.file
    text = path.read_text() if path.exists() else ""
    count = text.count(mutant.old)
    if count != 1:
        return f"{mutant.old!r} stands {count} times in {mutant.file}; it must stand there once"
    path.write_text(text.replace(mutant.old, mutant.new))
    return ""


def tested(folder: Path, tests: Iterable[str], expected: int) -> str:
    """Run tests in a copy; returns what is wrong unless pytest ends with the expected status."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return "" if expected == FAILED else f"{' '.join(tests)}: not done within {LIMIT_S} s"
    if done.returncode == expected:
        return ""
    if done.returncode == PASSED:
        return f"no test notices it in {' '.join(tests)}"
    return f"pytest ended with status {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"


def main(parts: list[str]) -> int:
    wanted = [mutant for mutant in MUTANTS if all(word in mutant.name for word in parts)]
    problems = 0
    with tempfile.TemporaryDirectory() as temporary:
        every = sorted({test for mutant in wanted for test in mutant.tests})
        problem = tested(copied(Path(temporary) / "unchanged"), every, PASSED)
        if problem:
            print(f"Without any mutant: {problem}")
            return 1
        for number, mutant in enumerate(wanted):
            began = time.monotonic()
            folder = copied(Path(temporary) / str(number))
            problem = replaced(folder, mutant) or tested(folder, mutant.tests, FAILED)
            print(f"{'ALIVE' if problem else 'killed':6} {time.monotonic() - began:5.1f} s  {mutant.name}", flush=True)
            if problem:
                problems += 1
                print(f"       {problem}", flush=True)
            shutil.rmtree(folder)
    print(f"{len(wanted) - problems} of {len(wanted)} mutants killed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
