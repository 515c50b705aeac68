"""Completion scripts, which shtab makes from the parsers."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from dragoman.cli.program import COMMANDS
from dragoman.cli.setup import SHELLS
from tests.cli.running import Surroundings


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_name_every_command_and_parse(shell: str, around: Surroundings) -> None:
    done = around.here("completion", shell)
    assert done.code == 0
    assert all(name in done.out for name in [*COMMANDS, "validate", "--schema"])
    program = shutil.which(shell)
    if program is not None:
        check = [program, "--no-execute"] if shell == "fish" else [program, "-n"]
        parsed = subprocess.run(check, input=done.out, capture_output=True, text=True, check=False, timeout=60)
        assert (parsed.returncode, parsed.stderr) == (0, "")


def test_without_shtab_the_extra_is_named(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    done = around.here("completion", "bash")
    assert done.code == 2
    assert "pip install 'dragoman[cli]'" in done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["dragoman", "mo"], "models"),
        (["dragoman", "history", "export", "--form"], "--format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(words: list[str], expected: str, around: Surroundings) -> None:
    script = around.here("completion", "bash").out
    quoted = " ".join(f"'{word}'" for word in words)
    run = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_dragoman; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{run}"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [expected]
