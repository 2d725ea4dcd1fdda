"""The manifest: strict JSON, the same bytes for the same values, and only FormatError for what is not one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import FormatError
from fastdata.manifest import DataFile, Fingerprint, Manifest, is_manifest

MANIFEST = Manifest(
    "lmdb", 3, ("jpg", "cls"), ("cat", "d\udcffg"), "f" * 64, {"resize": 256, "deep": {"a": [1, None]}},
    (DataFile("data.mdb", 7, "a" * 64, "b" * 64), DataFile("sub/x", 0)), "c" * 64,
)  # fmt: skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FILES = st.lists(st.builds(DataFile, st.just("x"), st.integers(0))).map(tuple)
NAMES = st.text(st.characters(exclude_categories=()), max_size=10)


def sealed(value: dict[str, Any]) -> bytes:
    """A manifest with these values whose hash is right."""
    import hashlib

    def dump(item: object) -> bytes:
        return json.dumps(item, indent=1).encode() + b"\n"

    return dump(value | {"sha256": hashlib.sha256(dump(value)).hexdigest()})


def values() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(MANIFEST.to_json())
    del value["sha256"]
    return value


def test_comes_back() -> None:
    blob = MANIFEST.to_json()
    assert Manifest.from_json(blob, "here") == MANIFEST
    assert Manifest.from_json(blob + b"  \n", "here") == MANIFEST
    assert blob.isascii()
    assert sealed(values()) == blob


@pytest.mark.slow
@given(
    st.builds(
        Manifest, st.text(), st.integers(0, 2**62), st.lists(NAMES).map(tuple), st.lists(NAMES).map(tuple), st.text(),
        st.dictionaries(st.text(), VALUES, max_size=3), FILES, st.text(),
    )
)  # fmt: skip
def test_any_manifest_comes_back(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json(), "here") == manifest


@pytest.mark.slow
@pytest.mark.parametrize("name", [*values()])
@given(value=JSON)
def test_any_value_gives_a_manifest_or_an_error_in_words(name: str, value: object) -> None:
    message = "here: "
    try:
        Manifest.from_json(sealed(values() | {name: value}), "here")
    except FormatError as error:
        message = str(error)
    assert message.startswith("here: ")


@pytest.mark.parametrize("name", [*values()])
def test_every_entry_is_needed(name: str) -> None:
    value = values()
    del value[name]
    with pytest.raises(FormatError, match="here: "):
        Manifest.from_json(sealed(value), "here")


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": -1}, {"count": True}, {"count": 1.0}, {"fields": "jpg"}, {"fields": [1]}, {"classes": None},
        {"files": {}}, {"files": [1]}, {"files": ["x"]}, {"files": [{"name": "/etc/passwd", "bytes": 1}]},
        {"files": [{"name": "a/../../b", "bytes": 1}]}, {"files": [{"name": "a", "bytes": -1}]},
        {"files": [{"name": "a", "bytes": 1, "head_sha256": 5}]}, {"options": []}, {"fastdata": 0}, {"fastdata": 2},
        {"fastdata": True}, {"fastdata": "1"}, {"fastdata": 1.0},
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(FormatError, match=r"here: (damaged manifest|layout version)"):
        Manifest.from_json(sealed(values() | wrong), "here")


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"fastdata": NaN}', b"[" * 100_000, b'{"a":' * 100_000,
        b'{"fastdata": 1, "options": {"x": 1e999}}', b'{"fastdata": 1}', b"9" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(blob: bytes) -> None:
    with pytest.raises(FormatError, match="here: "):
        Manifest.from_json(blob, "here")
    is_manifest(blob)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(FormatError):
        Manifest.from_json(blob, "here")
    assert not is_manifest(blob)


def test_a_value_that_was_changed_by_hand_is_refused() -> None:
    blob = MANIFEST.to_json()
    for place in range(len(blob) - 1):
        if not blob[place : place + 1].isspace():
            changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
            with pytest.raises(FormatError):
                Manifest.from_json(changed, "here")


def test_manifests_of_other_tools_are_told_apart() -> None:
    assert is_manifest(MANIFEST.to_json())
    assert is_manifest(MANIFEST.to_json()[:300])  # cut, but ours
    assert not is_manifest(b'{"name": "my web app", "short_name": "fastdata"}')
    assert not is_manifest(b'["fastdata"]')


def test_the_fingerprint_depends_on_all_it_covers_and_on_nothing_else() -> None:
    def of(*rows: tuple[bytes, dict[str, int]]) -> str:
        fingerprint = Fingerprint()
        for key, checksums in rows:
            fingerprint.add(key, checksums)
        return fingerprint.hexdigest()

    one, two = (b"a", {"jpg": 1, "cls": 2}), (b"b", {"jpg": 1})
    assert of(one, two) == of((b"a", {"cls": 2, "jpg": 1}), two)
    different = [
        of(),
        of(one),
        of(two, one),
        of(one, one),
        of((b"a", {"jpg": 2, "cls": 1})),
        of((b"a jpg=00000001", {"cls": 2})),
    ]
    assert len({of(one, two), *different}) == len(different) + 1
