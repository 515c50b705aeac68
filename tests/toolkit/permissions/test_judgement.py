from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import ToolCall
from dragoman.toolkit import PermissionChecker, PermissionPolicy, Rule
from dragoman.toolkit.permissions.judge import compile_rule
from dragoman.toolkit.permissions.patterns import PathResolver, Root
from dragoman.toolkit.permissions.rules import Match
from dragoman.toolkit.permissions.subject import subject_of
from tests.toolkit.permissions.helpers import BY_NAME, allow, decision, deny

ROOT = Root.of("/nowhere/work")
STRENGTH = {"deny": 2, "ask": 1, "allow": 0}

COMMANDS = [
    "git status", "git status; rm x", "rm x", "$(rm x)", "git status -s", "env git status", "ls *", "'git' status",
]  # fmt: skip
FILES = ["src/a.py", ".env", "../x", "/etc/passwd", "src", "~/x"]
ADDRESSES = ["https://a.example/", "https://b.example/x", "https://a.example@b.example/", "nonsense"]


CONDITIONS: list[dict[str, Any]] = [
    {}, {"command": "git status"}, {"command": ("git", "rm")}, {"command": "rm"}, {"path": "src"}, {"path": "**/.env"},
    {"path": ("src/*.py", "/etc")}, {"host": "a.example"}, {"host": "*"}, {"command": "git", "path": "src"},
]  # fmt: skip


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    return Rule(
        action=draw(st.sampled_from(["allow", "deny", "ask"])),
        tool=draw(st.sampled_from(["*", "Bash", "R*", "Fetch", "Write", "l??k", "bash"])),
        reason=draw(st.sampled_from(["", "because", "of that"])),
        **draw(st.sampled_from(CONDITIONS)),
    )


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    name, arguments = draw(
        st.one_of(
            st.sampled_from(COMMANDS).map(lambda text: ("Bash", {"command": text})),
            st.tuples(st.sampled_from(["Read", "Write"]), st.sampled_from(FILES).map(lambda text: {"file_path": text})),
            st.sampled_from(ADDRESSES).map(lambda text: ("Fetch", {"url": text})),
            st.sampled_from(["", "abc", "/etc"]).map(lambda text: ("look", {"anything": text, "count": 1})),
        )
    )
    return ToolCall("1", name, json.dumps(arguments))


def judged(chosen: list[Rule], made: ToolCall, default: Any = "ask") -> tuple[str, str, str]:
    policy = PermissionPolicy(rules=tuple(chosen), default=default)
    checker = PermissionChecker(policy, workspace="/nowhere/work")
    verdict = checker.judge(made, BY_NAME[made.name])
    return verdict.action, verdict.reason, verdict.rule


@given(st.lists(rules(), max_size=6), calls(), st.randoms())
def test_the_order_of_rules_does_not_matter(chosen: list[Rule], made: ToolCall, random: Any) -> None:
    shuffled = list(chosen)
    random.shuffle(shuffled)
    assert judged(chosen, made)[0] == judged(shuffled, made)[0] == judged(chosen + shuffled, made)[0]


@given(st.lists(rules(), max_size=6), rules(), calls())
def test_deny_rules_always_win(chosen: list[Rule], rule: Rule, made: ToolCall) -> None:
    subject = subject_of(made, BY_NAME[made.name])
    denied = [each for each in [*chosen, rule] if each.action == "deny"]
    touched = [each for each in denied if compile_rule(each, ROOT).touches(subject, PathResolver(ROOT)) is Match.YES]
    assert (judged([*chosen, rule], made)[0] == "deny") == bool(touched)


@given(st.lists(rules(), max_size=6), rules(), calls())
def test_another_rule_changes_the_decision_only_in_its_direction(
    chosen: list[Rule], rule: Rule, made: ToolCall
) -> None:
    before, after = judged(chosen, made)[0], judged([*chosen, rule], made)[0]
    if rule.action == "allow":
        assert STRENGTH[after] <= STRENGTH[before]
        assert before != "deny" or after == "deny"
    else:
        assert STRENGTH[after] >= STRENGTH[before]


@given(rules(), calls())
def test_what_a_rule_covers_it_also_touches(rule: Rule, made: ToolCall) -> None:
    compiled, subject = compile_rule(rule, ROOT), subject_of(made, BY_NAME[made.name])
    if compiled.covers(subject, PathResolver(ROOT)):
        assert compiled.touches(subject, PathResolver(ROOT)) is Match.YES


# --- conditions ------------------------------------------------------------------------------------------------------


def test_the_model_cannot_declare_a_tool_to_be_harmless() -> None:
    made = ToolCall("1", "unknown", '{"read_only": true}')
    assert decision([], made) == "ask"


def test_duplicate_keys_are_judged_as_the_tool_gets_them() -> None:
    made = ToolCall("1", "Bash", '{"command": "git status", "command": "rm x"}')
    assert decision([allow("Bash", command="git status"), deny("Bash", command="rm")], made) == "deny"
    made = ToolCall("1", "Bash", '{"command": "rm x", "command": "git status"}')
    assert decision([allow("Bash", command="git status"), deny("Bash", command="rm")], made) == "allow"


def test_a_list_of_denied_commands_is_said_to_be_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    """Where everything else is allowed; a rule about a whole tool is complete."""
    told = {
        "allow": [deny("Bash", command="rm"), deny("*", path="**/.env"), deny("B*", host="a.example")],
        "ask": [],
    }
    silent = [deny("Bash"), deny("Write", path="src"), allow("Bash", command="ls")]
    for default, incomplete in told.items():
        for rule in (*silent, *told["allow"]):
            caplog.clear()
            PermissionChecker(PermissionPolicy(rules=(rule,), default=default))  # type: ignore[arg-type]
            said = [each.getMessage() for each in caplog.records if each.name == "dragoman.toolkit"]
            assert len(said) == (rule in incomplete)
            assert all(rule.label in each and "list what may run" in each for each in said)


@pytest.mark.parametrize("name", ["command_line", "commandLine", "COMMAND-LINE", "shellCommand"])
def test_the_name_of_an_argument_counts_in_every_spelling(name: str) -> None:
    assert subject_of(ToolCall("1", "run", json.dumps({name: "rm x"})), None).commands == ("rm x",)
    several = subject_of(ToolCall("1", "run", '{"Commands": ["git", "rm x"]}'), None)
    assert several.commands == ("git 'rm x'", "git", "rm x")


@pytest.mark.parametrize("name", ["working_directory", "workingDirectory", "notebookPath"])
def test_and_so_does_that_of_a_path(name: str) -> None:
    assert subject_of(ToolCall("1", "run", json.dumps({name: "secret"})), None).paths == ("secret",)
