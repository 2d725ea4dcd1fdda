"""Remarks: warnings about images that could be decoded, by key and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

# Enough for a person to read; `fastdata verify` lists all.
_MOST = 1000


class Remarks(list[tuple[str, str]]):
    """A list of (key, message), with the first thousand.

    Attributes:
        left_out: how many more there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left_out = 0

    def add(self, key: str, message: str) -> None:
        """Add a message, or only count it if the list is full."""
        if len(self) < _MOST:
            self.append((key, message))
        else:
            self.left_out += 1

    def of_an_epoch(self) -> Callable[[str, str], None]:
        """`add`, but once for each key: a record may come several times in an epoch."""
        seen: set[str] = set()

        def add(key: str, message: str) -> None:
            if key not in seen:
                seen.add(key)
                self.add(key, message)

        return add
