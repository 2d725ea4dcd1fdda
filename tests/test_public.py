"""The public surface: what `fastdata` offers, and how little it costs to import."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastdata
from fastdata import errors

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "cv2")


def run(*args: str) -> str:
    result = subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_all_is_sorted_and_complete() -> None:
    # isort's order, which ruff keeps: constants, classes, functions
    assert len(fastdata.__all__) == len(set(fastdata.__all__))
    assert set(fastdata.__all__) == {*fastdata._HOME, "__version__"}
    assert {name for name in vars(errors) if name.endswith("Error")} <= set(fastdata.__all__)


@pytest.mark.parametrize("name", fastdata.__all__)
def test_every_name_loads(name: str) -> None:
    assert getattr(fastdata, name) is getattr(fastdata, name)
    assert name in dir(fastdata)


def test_no_name_hides_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(fastdata.__path__)}
    assert not modules & set(fastdata.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'DataLodaer'"):
        fastdata.DataLodaer  # noqa: B018


def test_import_is_light() -> None:
    loaded = run("-c", "import fastdata, sys; print(*sys.modules)").split()
    assert not {"torch", "cv2", "numpy", "PIL", "lmdb", "h5py", "typer", "rich"} & set(loaded)


@pytest.mark.parametrize("arguments", [("--help",), ("convert", "--help"), ("--version",)])
def test_command_is_light(arguments: tuple[str, ...]) -> None:
    code = (
        "import atexit, sys; sys.argv = ['fastdata', *sys.argv[1:]]\n"
        f"atexit.register(lambda: print('LOADED', *[name for name in {HEAVY} if name in sys.modules]))\n"
        "from fastdata.cli import main\n"
        "main()"
    )
    assert run("-c", code, *arguments).splitlines()[-1].strip() == "LOADED"


def test_module_is_the_command() -> None:
    assert run("-m", "fastdata", "--version").strip().endswith(fastdata.__version__)


def test_the_changelog_lists_this_version() -> None:
    assert f"## {fastdata.__version__}" in (ROOT / "CHANGELOG.md").read_text()
