"""Asking a person about tool calls: what is shown of a call, what can be answered, and what holds without a person.

A question is asked between two runs of the loop, not inside one: the conversation is in the store by then, so that a
program that is killed at the question asks it again when it is continued.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Collection, Iterable
from typing import Final

from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.toolkit import PermissionChecker, Rule
from dragoman.tools import Allow, AnyTool, Approval, Ask, Decision, PendingApproval, ToolContext, ToolSet, approve, deny

from .arguments import Approve
from .terminal import Terminal, escape_controls, to_line

_REFUSED: Final = "the user refused"
_NOBODY: Final = "nobody was there to approve it"
_NOT_AGAIN: Final = (
    "it had begun when the program was stopped, and nobody knows whether it did its work; find out before you try again"
)


class Approver:
    """Answers about calls that need approval: by asking, or as the user has said once for all."""

    def __init__(self, mode: Approve, terminal: Terminal, checker: PermissionChecker) -> None:
        self.mode: Approve = mode
        self.refused: int = 0
        """How many calls were refused because nobody could be asked."""
        self._terminal: Terminal = terminal
        self._checker: PermissionChecker = checker
        self._exactly: set[tuple[str, str]] = set()
        """Tools and arguments that "always" was said about, where no rule covers just these calls."""

    def check(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        """What the rules say, for the executor; in mode `auto`, yes to what they would ask."""
        decision = self._checker(call, tool, context)
        return Allow() if isinstance(decision, Ask) and self.mode == "auto" else decision

    def answer(
        self, pending: Iterable[PendingApproval], tools: ToolSet, uncertain: Collection[PendingApproval] = ()
    ) -> list[Approval]:
        """An answer about each call that waits. Those that are `uncertain` may have done their work already."""
        begun = {each.call.id for each in uncertain}
        return [self._answer(each, tools.find(each.call.name), begun=each.call.id in begun) for each in pending]

    def _answer(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call = pending.call
        if self.mode == "deny":
            return deny(call, reason=_NOT_AGAIN if begun else _REFUSED)
        if self.mode == "auto":
            # What may have done its work already is not done twice without a person's word.
            return deny(call, reason=_NOT_AGAIN) if begun else approve(call)
        if not begun and self._was_allowed(call, tool):
            return approve(call)
        if self._terminal.in_is_tty:
            return self._ask(pending, tool, begun=begun)
        self.refused += 1
        self._terminal.say(
            f"dragoman: {to_line(call.name)} was not run: it needs your approval, and standard input is no terminal. "
            f"Run it in a terminal, allow it in [permissions], or use --approve auto.",
            "yellow",
        )
        return deny(call, reason=_NOT_AGAIN if begun else _NOBODY)

    def _was_allowed(self, call: ToolCall, tool: AnyTool | None) -> bool:
        """Whether "always" was said about such calls; for tools that ask of their own accord, the rules do not."""
        if (call.name, call.arguments) in self._exactly:
            return True
        verdict = self._checker.judge(call, tool)
        return verdict.action == "allow" and verdict.source == "session"

    def _ask(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call, say = pending.call, self._terminal.say
        why = f" ({to_line(pending.reason)})" if pending.reason else ""
        say(f"{to_line(call.name)} {'wants to run again' if begun else 'wants to run'}{why}:", "bold")
        if tool is not None and tool.description:
            say(f"  {to_line(tool.description.partition(chr(10))[0])}", "dim")
        say("  " + format_arguments(call).replace("\n", "\n  "))
        rule = self._checker.suggest(call, tool)
        while True:
            said = self._terminal.ask(f"[y]es, [n]o, [a]lways ({_describe(rule)})? ")
            if said is None:  # Ctrl-D
                say("")
                return deny(call, reason=_REFUSED)
            word, _, reason = said.strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return approve(call)
                case "n" | "no":
                    return deny(call, reason=reason.strip() or (_NOT_AGAIN if begun else _REFUSED))
                case "a" | "always":
                    if rule is None:
                        self._exactly.add((call.name, call.arguments))
                    else:
                        self._checker.allow(rule)
                    say(f"Until the end of this session: {_describe(rule)}", "dim")
                    return approve(call)
                case _:
                    say("Answer y, n or a; behind n you may say why, for the model to read.")


def format_arguments(call: ToolCall) -> str:
    """All of the arguments, however long: nobody can agree to what was not shown."""
    try:
        text = json.dumps(call.parsed, indent=2, ensure_ascii=False)
    except ToolError:
        text = call.arguments
    return escape_controls(text)


def _describe(rule: Rule | None) -> str:
    return "allow this tool with exactly these arguments" if rule is None else f"allow {to_line(rule.canonical)}"
