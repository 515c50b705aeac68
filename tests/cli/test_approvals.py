"""Asking a person about tool calls."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from dragoman.cli.arguments import Approve as Mode
from dragoman.cli.session import Approver
from dragoman.cli.terminal import Terminal
from dragoman.conversation import ToolCall
from dragoman.toolkit import PermissionChecker, Rule
from dragoman.tools import PendingApproval, ToolRegistry, tool
from tests.cli.running import Tty

CALL = ToolCall("c1", "send", '{"to": "Ada", "text": "Hi"}')


@tool
def send(to: str, text: str) -> str:
    """Send a message."""
    return f"{to}: {text}"


TOOLS = ToolRegistry([send])


class Desk:
    """A person, an approver, and what the person has seen."""

    def __init__(self, mode: Mode, typed: str | None, place: Path) -> None:
        self.err = io.StringIO()
        stdin = io.StringIO() if typed is None else Tty(typed)
        self.checker = PermissionChecker(workspace=place)
        terminal = Terminal(stdin=stdin, stdout=io.StringIO(), stderr=self.err, environ={})
        self.approver = Approver(mode, terminal, self.checker)

    def answer(self, call: ToolCall = CALL, *, begun: bool = False, reason: str = "") -> tuple[bool, str]:
        pending = PendingApproval(call=call, reason=reason)
        [said] = self.approver.answer([pending], TOOLS, [pending] if begun else [])
        assert said.answers(call), "an approval is bound to the exact call"
        return said.approved, said.reason


@pytest.mark.parametrize(
    ("typed", "approved", "reason"),
    [
        ("perhaps\n\ny\n", True, ""),
        ("n not on a Sunday\n", False, "not on a Sunday"),
        ("", False, "the user refused"),
    ],
)
def test_typed_answers_are_parsed(typed: str, approved: bool, reason: str, tmp_path: Path) -> None:
    assert Desk("ask", typed, tmp_path).answer() == (approved, reason)


def test_the_question_shows_everything(tmp_path: Path) -> None:
    desk = Desk("ask", "n\n", tmp_path)
    desk.answer(reason="no rule allows send")
    for words in (
        "send wants to run (no rule allows send):",
        '"to": "Ada"',
        "Send a message.",
        "[1] from now on: allow send with any arguments until the tool changes",
        "[a]lways exactly this, [1]? ",
    ):
        assert words in desk.err.getvalue()


def test_always_applies_to_exactly_this_call(tmp_path: Path) -> None:
    desk = Desk("ask", "a\n", tmp_path)
    assert desk.answer(ToolCall("1", "Bash", '{"command": "ls x"}')) == (True, "")
    assert desk.answer(ToolCall("2", "Bash", '{"command": "ls x"}')) == (True, "")
    assert desk.answer(ToolCall("3", "Bash", '{"command": "ls y"}'))[0] is False


def test_never_is_not_asked_about_again(tmp_path: Path) -> None:
    desk = Desk("ask", "never\ny\n", tmp_path)
    assert [desk.answer(), desk.answer(msgspec.structs.replace(CALL, id="c2"))] == [(False, "the user refused")] * 2
    assert desk.err.getvalue().count("wants to run") == 1


def test_a_wider_rule_is_shown_and_chosen_by_its_number(tmp_path: Path) -> None:
    desk = Desk("ask", "1\n", tmp_path)
    assert desk.answer() == (True, "")
    other = ToolCall("2", "send", '{"to": "Bob", "text": "Hi"}')
    assert desk.answer(other) == (True, "")
    assert "Until the end of this session: allow send with any arguments until the tool changes" in desk.err.getvalue()


def test_always_for_a_hosted_tool_does_not_allow_ours_of_the_same_name(tmp_path: Path) -> None:
    desk = Desk("ask", "a\n", tmp_path)
    hosted = msgspec.structs.replace(CALL, hosted=True)
    assert desk.answer(hosted, reason="mail is to run send at the provider") == (True, "")
    assert "Send a message." not in desk.err.getvalue()
    assert desk.answer(hosted) == (True, "")
    assert desk.answer() == (False, "the user refused")


def test_the_user_can_repeat_an_uncertain_call(tmp_path: Path) -> None:
    desk = Desk("ask", "y\n", tmp_path)
    desk.checker.remember(Rule(action="allow", tool="send"))
    assert desk.answer(begun=True) == (True, "")
    assert "send wants to run again" in desk.err.getvalue()
