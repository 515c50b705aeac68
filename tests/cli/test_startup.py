"""Nothing heavy is loaded before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"msgspec", "rich", "prompt_toolkit", "asyncio", "dragoman.chat.client", "dragoman.transport", "difflib"}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument: str) -> None:
    code = (
        "import sys; from dragoman.cli import main; main([sys.argv[1]]); "
        "sys.stderr.write('\\n'.join(m for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split("\n"))
