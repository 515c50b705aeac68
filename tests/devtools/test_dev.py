"""The command line of dev.py."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dev
from devtools import checks
from devtools.errors import DevelopmentError

SCRIPT = Path(dev.__file__)


def test_an_older_python_can_read_it_and_is_told_which_one_it_needs() -> None:
    source = SCRIPT.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))
    older = source.replace("NEEDED = (3, 11)", "NEEDED = (9, 9)")
    done = subprocess.run([sys.executable, "-c", older, "test"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs Python 9.9 or newer, and this is Python 3." in done.stderr
    assert "Traceback" not in done.stderr


def test_only_the_standard_library_is_needed_to_start() -> None:
    # -S: no site-packages, so that anything else would be an ImportError.
    done = subprocess.run([sys.executable, "-S", SCRIPT, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "python3 dev.py test" in done.stdout


def test_help_of_test_names_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dev.parse(["test", "--help"])
    text = capsys.readouterr().out
    assert all(f"{check.name} " in text and check.what in text for check in checks.CHECKS)


@pytest.mark.parametrize(
    ("arguments", "names", "pytest_arguments"),
    [
        ([], [check.name for check in checks.CHECKS], ()),
        (["--only", "wheel", "--only", "ruff"], ["ruff", "wheel"], ()),
        (["--only", "coverage"], ["coverage"], ()),
        (["-k", "fold"], ["pytest"], ("-k", "fold")),
        (["--only", "pytest", "--", "-x", "tests/tools"], ["pytest"], ("-x", "tests/tools")),
        (["tests/tools"], ["pytest"], ("tests/tools",)),
    ],
)
def test_selection(arguments: list[str], names: list[str], pytest_arguments: tuple[str, ...]) -> None:
    options = dev.parse(["test", *arguments])
    selection = checks.selected(options.only, options.expression, options.pytest_arguments)
    assert [check.name for check in selection.checks] == names
    assert selection.pytest_arguments == pytest_arguments


def test_arguments_for_pytest_go_with_no_other_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DevelopmentError, match="--only pytest alone"):
        checks.selected(["coverage"], "fold", [])
    assert dev.main(["test", "--only", "coverage", "-k", "fold"]) == 2
    assert "dev.py: arguments for pytest" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["tset"], ["test", "--only", "tests"], ["test", "--onyl", "ruff"]])
def test_a_mistyped_command_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        dev.parse(arguments)
    assert stopped.value.code == 2
