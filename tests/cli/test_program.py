"""Which command is meant, and what is said about mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import __version__
from dragoman.cli import failures, main
from dragoman.cli.program import COMMANDS, load_command
from tests.cli.running import Surroundings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


HEAVY = {"msgspec", "rich", "prompt_toolkit", "asyncio", "dragoman.chat.client", "dragoman.transport", "difflib"}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument: str) -> None:
    code = "import sys; from dragoman.cli import main; main([sys.argv[1]]); sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], ["ask", "--help"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: dragoman [options]")
    assert all(name in out for name in COMMANDS)
    assert "examples:" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_group_and_command_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert "usage:" in capsys.readouterr().out
    for command in load_command(name).commands:
        assert main([name, command, "--help"]) == 0
        assert f"usage: dragoman {name} {command}" in capsys.readouterr().out


def test_a_group_without_a_default_shows_its_help(around: Surroundings) -> None:
    assert "commands:" in around.here("mcp").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--modle", "x", "hello there"], ["There is no option --modle.", "Did you mean --model?"]),
        (["hello there", "--xyzzy"], ["There is no option --xyzzy.", "See dragoman --help."]),
        (["modles"], ["There is no command 'modles'.", "Did you mean dragoman models?", "dragoman ask modles"]),
        (["chta"], ["Did you mean dragoman chat?"]),
        (["histroy", "list"], ["Did you mean dragoman history?"]),
        (["models", "lst"], ["dragoman models has no command 'lst'.", "Did you mean list?"]),
        (["skills", "xyzzy"], ["There are: list, validate."]),
        (["history", "show", "--jsn"], ["There is no option --jsn."]),
        (["keys", "set"], ["The following arguments are required: provider."]),
        (["completion", "csh"], ["invalid choice"]),
        (["history", "list", "abc"], ["takes no argument 'abc'"]),
        (["--approve", "perhaps", "hello there"], ["invalid choice: 'perhaps'"]),
        (["--json", "--json-lines", "hello there"], ["not allowed with"]),
        (["-o", "temperature"], ["Argument -o/--option: expected 2 arguments."]),
        ([""], ["There is no question."]),
        (["   "], ["There is no question."]),
        ([], ["There is no question."]),
        (["doctor", "--", "x"], ["takes no arguments after --"]),
    ],
    ids=" ".join,
)
def test_mistakes_are_one_line_and_name_what_was_meant(
    arguments: list[str], words: list[str], around: Surroundings
) -> None:
    done = around.here(*arguments)
    assert done.ended(2, *words)
    assert done.out == ""
    assert done.err.startswith("dragoman: ")


@pytest.mark.parametrize("arguments", [["ask", "models"], ["--", "models"], ["-q", "models"], ["ask", "--", "--help"]])
def test_a_question_that_is_the_name_of_a_command_can_be_asked(arguments: list[str], around: Surroundings) -> None:
    done = around.ask(None, *arguments)
    assert (done.code, done.out) == (0, f"You said: {arguments[-1]}\n")


def test_a_word_that_is_near_no_command_is_a_question(around: Surroundings) -> None:
    with around.talking():
        assert around.here("hello").out == "You said: hello\n"
        assert around.here("what", "is", "-q", "this").out == "You said: what is this\n"


def test_an_unexpected_error_is_one_line_and_debug_shows_where(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(sys.modules["dragoman.cli.program"], "_run", broken)
    assert around.here("hello").ended(1, "ZeroDivisionError", "--debug")
    assert "Traceback (most recent call last)" in around.here("hello", "--debug").err
    assert "Traceback" not in around.here("--", "--debug").err


@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-m", "dragoman", "-V"], [str(Path(sys.executable).with_name("dragoman")), "--version"]],
    ids=["module", "script"],
)
def test_both_ways_to_start_it(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"dragoman {__version__}\n"


def test_exit_codes_are_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    codes = [value for name, value in vars(failures).items() if name.isupper() and isinstance(value, int)]
    assert len(codes) == 11
    assert all(f"| {code} | " in page for code in codes)
