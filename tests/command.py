"""The command `fastdata`, run within the tests' own process."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

from fastdata.cli import main

# Format -> a name whose ending asks for it.
FORMATS = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "out.tar"}


def run(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
    """Run the command: (exit code, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([os.fspath(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def pack(source: Path, target: Path) -> Path:
    """Convert a folder in silence."""
    assert run("convert", source, target, "--workers", "1", "--quiet") == (0, "", "")
    return target


def strict(text: str) -> Any:
    """JSON without NaN and Infinity, which Python would let pass."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not valid JSON")

    return json.loads(text, parse_constant=refuse)
