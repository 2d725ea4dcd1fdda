"""Remarks: what there is to say about images that were decoded all the same, by key and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

# A list for a person to read. Of a data set that is damaged throughout, `fastdata verify` lists all.
_MOST = 1000


class Remarks(list[tuple[str, str]]):
    """A list of (key, message), of the first thousand.

    Attributes:
        left_out: how many more there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left_out = 0

    def add(self, key: str, message: str) -> None:
        """Keep a message, or count it where there are enough."""
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
