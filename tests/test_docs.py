"""The code blocks of README and docs run, page by page, from top to bottom, in a folder that holds `photos/`.

Python blocks of a page share one process; shell blocks run `fastdata ...`. A block after an HTML comment that begins
with "not run:" is left out, with the reason there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?P<skip><!-- not run:.*?-->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
# Pages define transforms and have no `if __name__ == "__main__"`: only forked workers know what is defined there.
_PREAMBLE = """\
import multiprocessing, shlex, subprocess, sys

if "fork" in multiprocessing.get_all_start_methods():
    multiprocessing.set_start_method("fork")


def shell(line):
    words = shlex.split(line, comments=True)
    if words:
        assert words[0] == "fastdata", line
        subprocess.run([sys.executable, "-m", *words], check=True, stdin=subprocess.DEVNULL)


"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and code of each block that is to be run."""
    found = [(match["language"], match["code"], match["skip"]) for match in _BLOCK.finditer(page.read_text("utf-8"))]
    return [(language, code) for language, code, skip in found if language in ("python", "sh") and not skip]


def program(page: Path) -> str:
    """The page as one Python program."""
    parts = [_PREAMBLE]
    for language, code in blocks(page):
        if language == "python":
            parts.append(code)
        else:
            parts += [f"shell({line!r})\n" for line in code.splitlines()]
    return "".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES if blocks(page)]
)
def test_page_runs(page: Path, photo_folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program(page)]
    result = subprocess.run(
        command, cwd=photo_folder.parent, env=environment, capture_output=True, text=True, timeout=110
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in menu


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target


def test_the_map_names_every_module() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    parts = ("formats", "codec", "transforms", "datasets", "loader", "cli")
    folders = ("fastdata", "converters", *(f"fastdata/{part}" for part in parts))
    modules = {path.name for folder in folders for path in (ROOT / folder).glob("*.py")}
    packages = {f"{path.parent.name}/" for path in ROOT.glob("fastdata/*/__init__.py")}
    assert {name for name in modules | packages if not re.search(rf"(?<!\w){re.escape(name)}", text)} == set()
