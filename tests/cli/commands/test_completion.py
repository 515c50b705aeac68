"""Completion scripts."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from dragoman.cli.commands.completion import SHELLS, script
from dragoman.cli.groups import GROUPS


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_parse(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    check = [program, "--no-execute"] if shell == "fish" else [program, "-n"]
    done = subprocess.run(check, input=script(shell), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_name_every_command(shell: str) -> None:
    text = script(shell)
    assert all(name in text for name in GROUPS)
    assert "validate" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["dragoman", "mo"], "models"),
        (["dragoman", "--sch"], "--schema"),
        (["dragoman", "history", "ex"], "export"),
        (["dragoman", "history", "export", "--form"], "--format"),
        (["dragoman", "chat", "--appr"], "--approve"),
        (["dragoman", "a question", "--js"], "--json --json-lines"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(words: list[str], expected: str) -> None:
    quoted = " ".join(f"'{word}'" for word in words)
    code = f'{script("bash")}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _dragoman; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
