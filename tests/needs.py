"""What a test needs and may do without: packages that a user can leave out.

A test of an optional engine is skipped where the engine is not installed. With FASTDATA_TEST_STRICT=1, as in CI, it
fails instead, so that no engine goes untested because an installation changed.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

STRICT = "FASTDATA_TEST_STRICT"


def package(name: str) -> ModuleType:
    """Import a package that the pins name; without it the test is skipped, or fails where tests are strict."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = f"{name} is not installed: {error}"
    if os.environ.get(STRICT) == "1":
        pytest.fail(f"{reason} ({STRICT}=1 asks for all of requirements/constraints.txt)", pytrace=False)
    pytest.skip(reason)
