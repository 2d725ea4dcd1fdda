"""The key rule and what it promises; records and labels."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdata.errors import RecordError
from fastdata.record import (
    MAX_KEY_BYTES,
    MAX_PATH_BYTES,
    Record,
    check_record,
    key_from_path,
    parse_label,
    path_from_key,
)

# Paths as they come from a file system: any bytes but NUL, and those that the rule is about more often.
PATHS = st.binary(min_size=1, max_size=300).map(os.fsdecode) | st.text("/_.%a~é\udcff ", min_size=1, max_size=12)
LONG_PATHS = st.text("/_.%aé\udcff", min_size=400, max_size=900)

KEYS = {
    "cat/1.jpg": "cat/1",
    "cat/1.5m view.JPG": "cat/1%2E5m view",
    "a.b.c.png": "a%2Eb%2Ec",
    ".hidden.jpg": "%2Ehidden",
    ".jpg": "%2Ejpg",
    "no_suffix": "no_suffix",
    "dir.d/x.png": "dir%2Ed/x",
    "__meta__/x.png": "%5F_meta__/x",
    "a/__b__.png": "a/__b__",
    "Ångström/ñ.png": "Ångström/ñ",
    "100%.png": "100%25",
    "a\nb\0.png": "a%0Ab%00",
    "bad\udcff\udcfe.png": "bad%FF%FE",
    'a*?\\|<>:".png': "a%2A%3F%5C%7C%3C%3E%3A%22",
    "-,;=+@()[]{}!#$&^~'.png": "-,;=+@()[]{}!#$&^~'",
    "/a.png": "%2Fa",
    "a//b.png": "a/%2Fb",
    "a///b.png": "a/%2F/b",
    "a/.png": "a/%2Epng",
    "..": "%2E",
}


@pytest.mark.parametrize(("path", "key"), KEYS.items())
def test_the_rule_by_examples(path: str, key: str) -> None:
    assert key_from_path(path) == key


@given(PATHS)
def test_keys_can_be_reversed(path: str) -> None:
    assert path_from_key(key_from_path(path, keep_suffix=True)) == path


@given(PATHS, PATHS)
def test_different_paths_have_different_keys(one: str, two: str) -> None:
    assert (key_from_path(one, keep_suffix=True) == key_from_path(two, keep_suffix=True)) == (one == two)


@given(PATHS | LONG_PATHS, st.booleans())
@settings(max_examples=300)
def test_every_key_can_be_written(path: str, keep_suffix: bool) -> None:
    key = key_from_path(path, keep_suffix=keep_suffix)
    assert len(key.encode()) <= MAX_KEY_BYTES
    check_record(Record(key, {"f" * 30: b""}))
    assert not key.startswith(("__", "/"))
    assert not key.endswith("/")
    assert "//" not in key
    assert "." not in key


@given(st.text("ab/é%", min_size=481, max_size=600), st.text("ab/é%", min_size=481, max_size=600))
def test_cut_keys_stay_apart(one: str, two: str) -> None:
    assert (key_from_path(one) == key_from_path(two)) == (one == two)


def test_only_the_last_suffix_goes() -> None:
    assert key_from_path("a/1.tar.gz") == "a/1%2Etar"
    assert key_from_path("a.b/1") == "a%2Eb/1"


@pytest.mark.parametrize("path", ["", "\ud800.jpg"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(RecordError):
        key_from_path(path)


def test_a_path_that_no_system_takes_is_refused() -> None:
    check_record(Record("a", {"jpg": b""}, "x" * MAX_PATH_BYTES))
    with pytest.raises(RecordError, match="'a': its path has more than 1,048,576 bytes"):
        check_record(Record("a", {"jpg": b""}, "x" * (MAX_PATH_BYTES + 1)))


@pytest.mark.parametrize(("blob", "label"), [(None, -1), (b"7", 7), (b" 7\n", 7), (b"-1", -1), (b"+3", 3)])
def test_labels(blob: bytes | None, label: int) -> None:
    assert parse_label("a", blob) == label
    assert Record("a", {} if blob is None else {"cls": blob}).label == label


@pytest.mark.parametrize("blob", [b"", b"cat", b"1.0", b"1_0", b"0x1", "٣".encode(), b"9" * 19, b"1 2"])
def test_a_label_that_is_not_an_integer_is_refused(blob: bytes) -> None:
    with pytest.raises(RecordError, match=r"'a'.*integer in ASCII"):
        parse_label("a", blob)


def test_the_image_is_the_first_of_its_fields() -> None:
    assert Record("a", {"cls": b"", "png": b"", "jpg": b""}).image_field == "png"
    with pytest.raises(RecordError, match=r"'a' has no image.*cls"):
        assert Record("a", {"cls": b""}).image_field
