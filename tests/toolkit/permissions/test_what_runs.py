"""What runs is what was judged."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from dragoman.conversation import ToolCall
from dragoman.toolkit import (
    BashSettings,
    CallbackResponder,
    PermissionAnswer,
    PermissionChecker,
    PermissionPolicy,
    Rule,
    toolkit,
)
from dragoman.toolkit.permissions.shell import read_shell
from dragoman.tools import Allow, Ask, ToolExecutor, ToolRun, approve, tool
from tests.rounds import rounds
from tests.toolkit.mutated_commands import try_all
from tests.toolkit.permissions.helpers import BY_NAME, TOOLS, allow, ask, call, ran

STATUS = allow("Bash", command="git status", options=("--short",))
STATUS_OF_ANY = allow("*", command="git status")


@pytest.fixture(autouse=True)
def _nothing_ran_yet() -> None:
    ran.clear()


def check(made: ToolCall, *rules: Rule, **policy: object) -> object:
    checker = PermissionChecker(PermissionPolicy(rules=rules, **policy))  # type: ignore[arg-type]
    return checker.check(made, BY_NAME.get(made.name))


CANONICAL = {
    "git status": "git status",
    "  git\tstatus  \n": "git status",
    "git status --short src/a.py HEAD~3": "git status --short src/a.py 'HEAD~3'",
    'git status "a b" \'c\'d"e"': "git status 'a b' cde",
    "git status ''": "git status ''",
    'git status "it\'s"': "git status 'it'\"'\"'s'",
    "git status '$x `y` *' a#b": "git status '$x `y` *' 'a#b'",
    "git status 'a\nb' é": "git status 'a\nb' 'é'",
    "git status 'a\\b'": "git status 'a\\b'",
    "git status '=ls'": "git status '=ls'",
}


@pytest.mark.parametrize(("written", "runs"), CANONICAL.items())
def test_there_is_one_spelling(written: str, runs: str) -> None:
    read = read_shell(written)
    assert read.canonical == runs
    again = read_shell(runs)
    assert again.canonical == runs, "it is its own"
    assert [word.text for word in again.simple.words] == [word.text for word in read.simple.words]


@pytest.mark.parametrize(
    "text", ["git status; ls", "git status $x", "X=1 git", "git status >x", "a=b c", "if x", "a *"]
)
def test_only_a_plain_command_has_one(text: str) -> None:
    assert read_shell(text).canonical == ""


@pytest.mark.parametrize(
    "text", ["git x$'a'", 'git x$"a"', "git `a`", "git 'a\\'", 'git "a\\"', "git <<E", "git \u00a0"]
)
def test_what_is_not_in_the_grammar_is_not_understood_at_all(text: str) -> None:
    assert read_shell(text).opaque


def test_a_spelling_that_would_be_too_long_to_read_is_none() -> None:
    words = 'git "' + "'" * 7_000 + '"'
    read = read_shell(words)
    assert (read.simple, read.canonical, read.opaque) == (None, "", False)


def test_what_a_command_rule_allowed_runs_as_it_was_judged() -> None:
    written = call("Bash", command='git status  "a" \n')
    with ToolExecutor(TOOLS, permission=PermissionChecker(PermissionPolicy(rules=(STATUS,)))) as executor:
        result = executor.execute(written)
    assert (result.text, result.call_id) == ("done", written.id)
    assert ran == [("Bash", "git status a")]


def test_a_call_that_needs_no_other_spelling_is_left_alone() -> None:
    assert check(call("Bash", command="git status --short x"), STATUS) == Allow()


@pytest.mark.parametrize(
    ("rules", "default"), [((allow("Bash"),), "ask"), ((allow("Bash", name="all"), STATUS), "ask"), ((), "allow")]
)
def test_what_another_rule_or_the_default_allowed_runs_as_it_was_written(rules: tuple[Rule, ...], default: str) -> None:
    assert check(call("Bash", command='git status  "a"'), *rules, default=default) == Allow()


def test_what_a_person_allowed_runs_as_it_was_shown() -> None:
    responder = CallbackResponder(ask_permission=lambda request: PermissionAnswer(allowed=True))
    rules = (ask("Bash"), STATUS)
    checker = PermissionChecker(PermissionPolicy(rules=rules), responder=responder)
    with ToolExecutor(TOOLS, permission=checker) as executor:
        executor.execute(call("Bash", command='git status  "a"'))
    made = call("Bash", command='git status  "b"')
    with ToolExecutor(TOOLS, permission=PermissionChecker(PermissionPolicy(rules=rules))) as executor:
        executor.execute_all([made], ToolRun(approvals=[approve(made)]))
    assert ran == [("Bash", 'git status  "a"'), ("Bash", 'git status  "b"')]


def test_the_rule_that_a_person_remembers() -> None:
    checker = PermissionChecker(PermissionPolicy())
    made = call("Bash", command='head  "x"')
    exactly, wider = checker.suggest(made, BY_NAME["Bash"])
    checker.remember(exactly)
    assert checker.check(made, BY_NAME["Bash"]) == Allow(approved=True), "this text was shown"
    checker.remember(wider)
    assert checker.check(call("Bash", command='head  "y"'), BY_NAME["Bash"]) == Allow(
        approved=True, arguments='{"command": "head y"}'
    )


def test_only_the_commands_are_replaced() -> None:
    written = {"label": "Häuser", "steps": [{"cmd": 'git  status "a"'}, {"cmd": "git status b"}], "count": 10**30}
    rule = allow("run", command="git status")
    decision = check(call("run", **written), rule)
    assert isinstance(decision, Allow)
    steps = [{"cmd": "git status a"}, {"cmd": "git status b"}]
    assert json.loads(decision.arguments) == {**written, "steps": steps}


def test_a_list_of_words_stays_one() -> None:
    assert check(call("run", argv=["git", "status", "it's; rm x"]), allow("run", command="git status")) == Allow()


def test_a_list_of_commands_is_not_taken_for_words() -> None:
    rule = allow("run", command="git")
    assert isinstance(check(call("run", commands=["git", "status; rm x"]), rule), Ask)
    assert isinstance(check(call("run", commands=["git", "rm -r x"]), rule), Ask)


def test_a_repeated_name_is_left_out() -> None:
    twice = ToolCall("1", "Bash", '{"command": "rm", "command": "git  status"}')
    assert check(twice, STATUS) == Allow(arguments='{"command": "git status"}'), "no other reader finds the first one"


def test_a_command_that_cannot_be_replaced_asks() -> None:
    @tool(name="Bash")
    def bash(command: str = "git  status") -> str:
        return command

    checker = PermissionChecker(PermissionPolicy(rules=(STATUS,)))
    decision = checker.check(ToolCall("1", "Bash", "{}"), bash)
    assert isinstance(decision, Ask)
    assert "cannot be replaced" in decision.reason


@pytest.mark.parametrize("name", ["args", "arguments", "flags", "options", "stdin"])
def test_words_beside_a_command_are_part_of_it(name: str) -> None:
    """A tool may append them: a rule for `rg` does not allow `rg --pre=rm`."""
    assert isinstance(check(call("run", command="git status", **{name: ["--pre=rm"]}), STATUS_OF_ANY), Ask)
    assert check(call("run", command="git status", note="x"), STATUS_OF_ANY) == Allow()


def test_a_call_that_would_change_elsewhere_asks() -> None:
    """Its number has more digits than Python reads."""
    made = ToolCall("1", "run", '{"command": "git  status", "seconds": 0.10000000000000000001}')

    @tool(name="run")
    def run(command: str, seconds: Decimal) -> str:
        return command

    checker = PermissionChecker(PermissionPolicy(rules=(STATUS_OF_ANY,)))
    decision = checker.check(made, run)
    assert isinstance(decision, Ask)
    assert "cannot be replaced" in decision.reason


# --- in bash ---------------------------------------------------------------------------------------------------------

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@needs_bash
def test_no_mutated_command_runs_what_was_not_judged() -> None:
    found = try_all(rounds(100_000, part=25))
    assert found.faults == []
    assert found.allowed > found.tried // 10, "enough of them are run"
    assert found.let_through > found.tried // 4


@needs_bash
def test_the_tool_runs_the_words_that_were_judged(tmp_path: Path) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    git.chmod(0o700)
    checker = PermissionChecker(PermissionPolicy(rules=(STATUS,)), workspace=tmp_path)
    tools = toolkit(tmp_path, only=["Bash"], bash=BashSettings(env={"PATH": str(tmp_path)}))
    with ToolExecutor(tools, permission=checker) as executor:
        for written, words in {"git status 'a;b' \"it's\" é\n": "<status><a;b><it's><é>"}.items():
            assert executor.execute(ToolCall("1", "Bash", json.dumps({"command": written}))).text.startswith(words)
        refused = executor.execute(ToolCall("1", "Bash", json.dumps({"command": "git status x$'\"' ; id >P '\"'"})))
    assert "A person must approve it first" in refused.text
    assert [each.name for each in tmp_path.iterdir()] == ["git"]
