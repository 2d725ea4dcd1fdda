"""A conversion that stops at a named moment, says so on stdout, and goes on when its stdin says so or ends.

`python -m tests.stoppable MOMENT CALL SRC DST OPTIONS`: MOMENT is "module:Class.method", before whose CALLth call it
stops; OPTIONS are `convert`'s as JSON, and "file_limit" is the longest file that it may write (RLIMIT_FSIZE).
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
from typing import Any


def stop_at(moment: str, call: int) -> None:
    """Wrap a method so that it stops before its `call`th call."""
    module, _, path = moment.partition(":")
    owner, _, name = path.partition(".")
    place = getattr(importlib.import_module(module), owner)
    real = getattr(place, name)
    calls = 0

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            sys.stdout.write("here\n")
            sys.stdout.flush()
            sys.stdin.readline()
        return real(*args, **kwargs)

    setattr(place, name, wrapped)


def main(moment: str, call: str, src: str, dst: str, text: str) -> None:
    """Convert, with a stop."""
    from fastdata.converters.convert import convert

    options = json.loads(text)
    if (limit := options.pop("file_limit", None)) is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if moment:
        stop_at(moment, int(call))
    convert(src, dst, **options)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
