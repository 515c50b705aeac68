"""The command, as far as it goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import __version__
from dragoman.cli import main


def test_without_arguments_it_prints_the_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["dragoman"])
    assert main() == 0
    assert main([]) == 0
    assert capsys.readouterr().out == f"dragoman {__version__}\n" * 2


@pytest.mark.parametrize(
    ("argument", "code", "text"),
    [
        ("--version", 0, f"dragoman {__version__}\n"),
        ("--help", 0, "usage: dragoman"),
        ("--nonsense", 2, "unrecognized arguments: --nonsense"),
    ],
)
def test_arguments(argument: str, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([argument])
    assert stopped.value.code == code
    captured = capsys.readouterr()
    assert text in captured.out + captured.err


@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-m", "dragoman"], [str(Path(sys.executable).with_name("dragoman"))]],
    ids=["module", "script"],
)
def test_both_ways_to_start_it(command: list[str]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"dragoman {__version__}\n"
