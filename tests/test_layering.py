"""The layering contracts of pyproject.toml can fail: each is broken on purpose in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = "Rooms import only rooms below them"
DOORS = "Rooms import from each other's doors"
TRANSPORT = "The transport does not know the providers"
FACADE = "Ready tools, MCP and the simulator work without the chat facade"
PURE = "Values, codecs and the loop's decision do no I/O and read no clock"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of everything that import-linter looks at."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    shutil.copytree(ROOT / "devtools", tmp_path / "devtools", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def put(house: Path, module: str, source: str) -> None:
    """Add a line to a module, and make the module and its packages where they are missing."""
    *packages, name = module.split(".")
    directory = house / "src"
    for package in packages:
        directory /= package
        directory.mkdir(exist_ok=True)
        (directory / "__init__.py").touch()
    path = directory / name / "__init__.py" if (directory / name).is_dir() else directory / f"{name}.py"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{source}\n")


def broken_contracts(house: Path) -> dict[str, str]:
    """Those that are broken, each with what is said about it."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=house,
        env=os.environ | {"PYTHONPATH": str(house / "src"), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    broken = re.findall(r"^(.+) BROKEN\b", done.stdout, re.MULTILINE)
    assert (done.returncode != 0) == bool(broken), done.stdout + done.stderr
    said = re.split(r"^(.+)\n-+\n", done.stdout.rpartition("Broken contracts")[2], flags=re.MULTILINE)[1:]
    return {contract: dict(zip(said[::2], said[1::2], strict=True))[contract] for contract in broken}


def test_a_broken_rule_is_found(house: Path) -> None:
    lines = [
        ("dragoman.conversation.blocks", "from dragoman import cli", LAYERS),
        ("dragoman.errors", "from dragoman import tools", LAYERS),
        ("dragoman.tools.registry", "from dragoman.providers import anthropic", LAYERS),
        ("dragoman.loop.drive", "from dragoman.stores import file", LAYERS),
        ("dragoman.attic", "", LAYERS),  # a room that is not in the list
        ("dragoman.loop.step", "from dragoman.tools.registry import ToolRegistry", DOORS),
        ("dragoman.transport.http", "import dragoman.providers.profiles", TRANSPORT),
        ("dragoman.toolkit.files", "from dragoman.chat import client", FACADE),
        ("dragoman.conversation.blocks", "import asyncio", PURE),
        ("dragoman.conversation.late", "def now():\n    from time import time", PURE),
        ("dragoman.providers.gemini.encode", "import httptools", PURE),
        ("dragoman.loop.step", "from os import environ", PURE),
    ]
    # What the lines import must exist, as it will when somebody writes such a line.
    for room in ("chat.client", "providers.anthropic", "providers.profiles", "stores.file"):
        put(house, f"dragoman.{room}", "")
    for module, source, _ in lines:
        put(house, module, source)
    broken = broken_contracts(house)
    for module, _, contract in lines:
        assert module in broken[contract], f"{module} in {contract}"


def test_a_forbidden_import_is_found_through_another_module(house: Path) -> None:
    put(house, "dragoman._descriptors", "import socket")  # allowed there
    assert broken_contracts(house) == {}, "the house as it is keeps every contract"
    put(house, "dragoman.providers.anthropic", "import dragoman._descriptors")
    assert set(broken_contracts(house)) == {PURE}
