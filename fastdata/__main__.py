"""`python -m fastdata`: the same program as the command `fastdata`."""

from __future__ import annotations

import sys

from fastdata.cli import main

if __name__ == "__main__":
    sys.exit(main())
