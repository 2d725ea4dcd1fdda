"""The project's language: words that nobody in this field uses, or that are said in another way here, stay out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What is read: text, docstrings, comments and identifiers alike.
GLOBS = (
    "README.md", "CONTRIBUTING.md", "mkdocs.yml", "docs/**/*.md", "fastdata/**/*.py", "converters/**/*.py",
    "scripts/**/*.py",
)  # fmt: skip
# The names of AV1's specification, and of folders that people have.
EXEMPT = {"fastdata/codec/headers/av1.py", "fastdata/formats/class_names.py"}
# A pattern (regular, upper and lower case alike, beginning at a word or a part of an identifier) -> the better word.
WORDS = {
    r"pictures?": "image",
    r"how-manieth": "ordinal, number",
    r"(in|with) words": "with a message, with an error",
    r"without a word": "silently",
    r"not worth a word": "not reported",
    r"in silence": "silently",
    r"(is|are|was|were) told": "is reported",
    r"lets? go": "release",
    r"left away|leave \S+ away": "omit",
    r"(is|are) (found out|to see to)": "is determined, must ensure",
    r"is no (JSON|LMDB|tar|HDF5|multiple)": "is not a ...",
    r"crews?": "executor",
    r"clerk": "executor",
    r"deaf": "ignore_signals",
    r"autopsy": "exit status",
    r"forsake": "abandon",
    r"nests?": "tree, pytree",
    r"begun": "prepared",
    r"speaks for": "covers, applies to",
}


def files() -> list[Path]:
    return sorted({path for pattern in GLOBS for path in ROOT.glob(pattern) if path.is_file()})


def places(path: Path, pattern: re.Pattern[str]) -> list[str]:
    """Each place where a word stands, as `file:line: the line`; a phrase may go over the end of a line."""
    text = path.read_text("utf-8")
    found = [text.count("\n", 0, match.start()) for match in pattern.finditer(text)]
    lines = text.splitlines()
    return [f"{path.relative_to(ROOT)}:{number + 1}: {lines[number].strip()}" for number in found]


@pytest.mark.parametrize("word", WORDS)
def test_words_that_are_said_in_another_way(word: str) -> None:
    phrase = word.replace(" ", r"[\s#]+")
    # An underscore ends a word, too: identifiers are read part by part.
    pattern = re.compile(rf"(?<![a-z])(?:{phrase})(?![a-z])", re.IGNORECASE)
    found = [
        place for path in files() if path.relative_to(ROOT).as_posix() not in EXEMPT for place in places(path, pattern)
    ]
    assert not found, f"write {WORDS[word]!r} instead (docs/glossary.md):\n" + "\n".join(found)
