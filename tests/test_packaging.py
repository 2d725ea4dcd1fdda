"""The wheel holds every package, under the one top-level name `fastdata`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> set[str]:
    """Every module file as the wheel should name it."""
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fastdata").rglob("*.py")}
    found = {name for name in found if not name.startswith("fastdata/converters/")}  # seen through the link or not
    return found | {"fastdata/" + path.relative_to(ROOT).as_posix() for path in (ROOT / "converters").rglob("*.py")}


def test_package_list_is_the_folders(project: dict[str, Any]) -> None:
    folders = {os.path.dirname(name).replace("/", ".") for name in modules()}
    assert sorted(folders) == project["tool"]["setuptools"]["packages"]


def test_every_package_has_an_init() -> None:
    assert {f"{os.path.dirname(name)}/__init__.py" for name in modules()} <= modules()


@pytest.mark.skipif(not (ROOT / "fastdata/converters").is_symlink(), reason="a checkout without links")
def test_link_is_relative_and_leads_to_converters() -> None:
    assert os.readlink(ROOT / "fastdata/converters") == "../converters"


@pytest.mark.parametrize("link", [True, False], ids=["link", "no-link"])
def test_wheel_has_one_top_level_name(tmp_path: Path, link: bool) -> None:
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fastdata", source / "fastdata", symlinks=True, ignore=ignore)
    shutil.copytree(ROOT / "converters", source / "converters", ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    if not link:  # what a checkout without links has in its place
        (source / "fastdata/converters").unlink()
        (source / "fastdata/converters").write_text("../converters")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == modules() | {"fastdata/py.typed"}


def test_a_plain_install_brings_the_fast_engines(project: dict[str, Any]) -> None:
    wanted = {line.split(";")[0].split(">")[0].strip() for line in project["project"]["dependencies"]}
    assert {"simplejpeg", "isal", "cykooz-resizer"} <= wanted
    assert project["project"]["optional-dependencies"]["fast"] == []  # a name that people have in their requirements
