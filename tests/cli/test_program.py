"""Choosing the command, help, mistakes, and completion scripts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import __version__
from dragoman.cli import failures, main
from dragoman.cli.program import COMMANDS, load_command
from dragoman.cli.setup import SHELLS
from tests.cli.running import Surroundings, calling
from tests.logs import never_set_up

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
def test_mistakes_are_one_line_with_a_suggestion(arguments: list[str], words: list[str], around: Surroundings) -> None:
    done = around.here(*arguments)
    assert done.ended(2, *words)
    assert done.out == ""
    assert done.err.startswith("dragoman: ")


@pytest.mark.parametrize("arguments", [["ask", "models"], ["--", "models"], ["-q", "models"], ["ask", "--", "--help"]])
def test_a_command_name_can_be_asked_as_a_question(arguments: list[str], around: Surroundings) -> None:
    done = around.ask(None, *arguments)
    assert (done.code, done.out) == (0, f"You said: {arguments[-1]}\n")


def test_a_word_unlike_any_command_is_a_question(around: Surroundings) -> None:
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


def test_a_tool_that_crashes_is_one_line_and_debug_shows_where(around: Surroundings) -> None:
    (around.work / "broken.py").write_text(
        "from dragoman import tool\n\n@tool\ndef broken(x: int) -> int:\n    return x / 0  # here\n"
    )
    calls = [calling("broken", {"x": 1}), calling("broken", {"x": 2}), "It did not work."]
    with around.talking([*calls, *calls]), never_set_up():
        done = around.here("Go.", "-T", "broken.py", "--approve", "auto")
        debugged = around.here("Go.", "-T", "broken.py", "--approve", "auto", "--debug")
    line = "dragoman: tool broken crashed: ZeroDivisionError: division by zero"
    assert (done.code, done.out) == (0, "It did not work.\n")
    assert [each for each in done.err.splitlines() if each.startswith("dragoman:")] == [f"{line} (--debug shows where)"]
    assert "# here" not in done.err
    assert f"{line}\nTraceback (most recent call last):\n" in debugged.err
    assert "    return x / 0  # here\n" in debugged.err


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


# --- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_contain_every_command_and_are_valid(shell: str, around: Surroundings) -> None:
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
