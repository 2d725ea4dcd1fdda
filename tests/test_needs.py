"""A missing engine is a skip on a user's machine and a failure in CI."""

from __future__ import annotations

import pytest

from tests import needs


def test_a_package_that_is_there_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(needs.STRICT, "1")
    assert needs.package("numpy").__name__ == "numpy"


@pytest.mark.parametrize(("strict", "outcome"), [("", "Skipped"), ("0", "Skipped"), ("1", "Failed")])
def test_a_missing_package_skips_or_fails(strict: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(needs.STRICT, strict)
    with pytest.raises(BaseException, match="no_such_engine is not installed") as caught:
        needs.package("no_such_engine")
    assert type(caught.value).__name__ == outcome
