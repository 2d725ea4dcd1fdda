"""Checks of arguments: one wording for each kind of value, which names the argument, what came and what would do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fastdata import checks
from fastdata.errors import OptionError
from fastdata.size import Size


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: checks.integer("n", "x"), "n must be an integer, not 'x'"),
        (lambda: checks.integer("n", True), "n must be an integer, not True"),
        (lambda: checks.integer("n", np.bool_(1)), "n must be an integer, not np.True_"),
        (lambda: checks.integer("n", 2.0, 1), "n must be an integer of at least 1, not 2.0"),
        (lambda: checks.integer("n", 0, 1), "n must be an integer of at least 1, not 0"),
        (lambda: checks.integer("n", 101, 1, 100), "n must be an integer from 1 to 100, not 101"),
        (lambda: checks.integer("n", "x" * 1000), f"n must be an integer, not '{'x' * 99}"),
        (lambda: checks.number("p", "x", 0, 1), "p must be a number from 0 to 1, not 'x'"),
        (lambda: checks.number("p", math.nan, 0, 1), "p must be a number from 0 to 1, not nan"),
        (lambda: checks.number("p", False, 0), "p must be a number of at least 0, not False"),
        (lambda: checks.number("p", math.inf, 0), "p must be a number of at least 0, not inf"),
        (lambda: checks.flag("f", 1), "f must be True or False, not 1"),
        (lambda: checks.choice("c", "x", ("a", "b", None)), "c must be 'a', 'b' or None, not 'x'"),
        (lambda: checks.choice("c", np.zeros(2), ("a",)), "c must be 'a', not array([0., 0.])"),
        (lambda: checks.function("f", 3), "f must be callable, not 3"),
        (lambda: checks.interval("r", (0, 1)), "r must be (least, most) with 0 < least <= most, not (0, 1)"),
        (lambda: checks.interval("r", 3, zero=True), "r must be (least, most) with 0 <= least <= most, not 3"),
        (lambda: checks.side("s", "7"), "s must be an integer from 1 to 65535, not '7'"),
        (lambda: checks.side("s", [True]), "s must be an integer from 1 to 65535, not [True]"),
        (lambda: checks.size("s", 0), "s must be an integer from 1 to 65535 or (height, width), not 0"),
        (
            lambda: checks.size("s", (0, 4)),
            "s must be an integer from 1 to 65535 or (height, width) of such integers, not (0, 4)",
        ),
        (
            lambda: checks.color("c", 256),
            "c must be a level from 0 to 255 or three of them (red, green, blue), not ",
        ),
        (lambda: checks.byte_count("b", "5 parsecs"), 'b must be a size such as "256MB", "1GB" or "64MiB", not '),
        (lambda: checks.byte_count("b", 0), f"b must be an integer from 1 to {2**63 - 1}, not 0"),
        (lambda: checks.bilinear("i", "cubic"), "i must be 'bilinear', not 'cubic': images are resized bilinearly"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_would_do(check: Callable[[], Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        check()
    assert str(caught.value).startswith(words)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", ["", "red", "1,2", "1,2,3,4", "1,2,300", "-1", (1, 2), (1, 2, True), 0.5, None])
def test_what_is_no_color(value: Any) -> None:
    with pytest.raises(OptionError, match=r"must be a level from 0 to 255"):
        checks.color("fill", value)


@pytest.mark.parametrize("value", ["", "MB", "-1MB", "1e3", "9" * 400, 2**63, 0, True, 1.5, None])
def test_what_is_no_number_of_bytes(value: Any) -> None:
    with pytest.raises(OptionError, match="shard_size must be"):
        checks.byte_count("shard_size", value)


def test_every_spelling_becomes_one() -> None:
    for value in (3, np.int64(3), np.uint8(3), torch.tensor(3), np.array(3)):
        found = checks.integer("n", value, 3, 3)
        assert (found, type(found)) == (3, int)
    for value in (0.5, np.float32(0.5)):
        assert (checks.number("p", value, 0, 1), type(checks.number("p", value, 0))) == (0.5, float)
    assert checks.number("p", 0, 0) == 0.0
    assert (checks.flag("f", True), checks.flag("f", np.bool_(0))) == (True, False)
    assert [checks.choice("c", value, ("a", 2, None)) for value in ("a", 2, None)] == ["a", 2, None]
    assert checks.interval("r", [1, 2]) == (1.0, 2.0)
    assert [checks.side("s", value) for value in (7, [7], (np.int32(7),))] == [7, 7, 7]
    for square in (7, [7], (7, 7), [np.int64(7), 7], Size(7, 7)):
        found = checks.size("s", square)
        assert found == Size(height=7, width=7)
        assert repr(found) == "(7, 7)"
    for gray in (3, "3", " 3 ", (3, 3, 3), "3,3,3", [3, 3, 3], np.array([3, 3, 3])):
        assert checks.color("c", gray) == (3, 3, 3)
    for text, count in (("256MB", 256_000_000), ("1.5 GB", 1_500_000_000), ("64MiB", 64 << 20), ("1000", 1000), (7, 7)):
        assert checks.byte_count("b", text) == count
