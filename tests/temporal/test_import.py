"""Nothing of Temporal is loaded before it is used, and a missing SDK is said plainly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import dragoman.temporal


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_importing_the_room_loads_nothing() -> None:
    code = "import sys, dragoman, dragoman.temporal; print([m for m in ('temporalio', 'asyncio') if m in sys.modules])"
    assert run(code) == "[]"


def test_without_the_sdk_the_error_names_the_extra() -> None:
    code = (
        "import sys\n"
        "sys.modules['temporalio'] = None\n"
        "import dragoman.temporal\n"
        "try: dragoman.temporal.Agent\n"
        "except dragoman.errors.ConfigurationError as error: print(error)\n"
    )
    assert "pip install 'dragoman[temporal]'" in run(code)


def test_nothing_private_of_the_sdk_is_imported() -> None:
    """It may change at any time."""
    for file in Path(dragoman.temporal.__file__).parent.glob("*.py"):
        imports = re.findall(r"^\s*(?:from|import) (?!dragoman|\.)(.*?)$", file.read_text(), re.MULTILINE)
        assert not [line for line in imports if re.search(r"(?<!\w)_(?!_future__)", line)], file.name
