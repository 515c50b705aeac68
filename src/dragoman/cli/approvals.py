"""Asking a person about tool calls.

Owns: what is shown of a call, what can be answered, and what holds where nobody can be asked.
Must not know: rules (the PermissionChecker has them) and how calls are run.

A question is asked between two runs of the loop, not inside one: the conversation is in the store by then, so that a
program that is killed at the question asks it again when it is continued.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Collection, Iterable
from typing import Final, Literal, TypeAlias

from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.toolkit.permissions import PermissionChecker, Rule
from dragoman.tools.definition import AnyTool
from dragoman.tools.permission import Allow, Approval, Ask, Decision, PendingApproval, approve, deny
from dragoman.tools.registry import ToolSet
from dragoman.tools.run import ToolContext

from .terminal import Terminal, harmless, one_line

__all__ = ["Approver", "Mode", "shown_arguments"]

Mode: TypeAlias = Literal["ask", "auto", "deny"]

_QUESTION: Final = "Allow? [y]es, [n]o, [a]lways, [e]xplain: "
_REFUSED: Final = "the user refused"
_NOBODY: Final = "nobody was there to approve it"
_NOT_AGAIN: Final = (
    "it had begun when the program was stopped, and nobody knows whether it did its work; find out before you try again"
)


def shown_arguments(call: ToolCall) -> str:
    """All of the arguments, however long: nobody can agree to what was not shown."""
    try:
        text = json.dumps(call.parsed, indent=2, ensure_ascii=False)
    except ToolError:
        text = call.arguments
    return harmless(text)


class Approver:
    """Answers about calls that need approval: by asking, or as the user has said once for all."""

    def __init__(self, mode: Mode, terminal: Terminal, checker: PermissionChecker) -> None:
        self.mode: Mode = mode
        self.refused: int = 0
        """How many calls were refused because nobody could be asked."""
        self._terminal: Terminal = terminal
        self._checker: PermissionChecker = checker
        self._exactly: set[tuple[str, str]] = set()
        """Tools and arguments that "always" was said about, where no rule covers just these calls."""

    # --- the executor's check ---

    def check(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        """What the rules say; in mode `auto`, yes to what they would ask."""
        decision = self._checker(call, tool, context)
        return Allow() if isinstance(decision, Ask) and self.mode == "auto" else decision

    # --- the calls that wait ---

    def answers(
        self, pending: Iterable[PendingApproval], tools: ToolSet, uncertain: Collection[PendingApproval] = ()
    ) -> list[Approval]:
        """An answer about each call."""
        begun = {each.call.id for each in uncertain}
        return [self._answer(each, tools.find(each.call.name), begun=each.call.id in begun) for each in pending]

    def _answer(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call = pending.call
        if self.mode == "deny":
            return deny(call, reason=_NOT_AGAIN if begun else _REFUSED)
        if self.mode == "auto":
            # What may have done its work already is not done twice without a person's word.
            return deny(call, reason=_NOT_AGAIN) if begun else approve(call)
        if not begun and self._allowed_before(call, tool):
            return approve(call)
        if not self._terminal.in_is_tty:
            self.refused += 1
            name = one_line(call.name)
            self._terminal.say(
                f"dragoman: {name} was not run: it needs your approval, and standard input is no terminal. "
                f"Run it in a terminal, allow it in [permissions], or use --approve auto.",
                "yellow",
            )
            return deny(call, reason=_NOT_AGAIN if begun else _NOBODY)
        return self._ask(pending, tool, begun=begun)

    def _allowed_before(self, call: ToolCall, tool: AnyTool | None) -> bool:
        """Whether "always" was said about such calls; for tools that ask of their own accord, the rules do not."""
        if (call.name, call.arguments) in self._exactly:
            return True
        verdict = self._checker.judge(call, tool)
        return verdict.action == "allow" and verdict.source == "session"

    def _ask(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call = pending.call
        why = f" ({one_line(pending.reason)})" if pending.reason else ""
        what = "wants to run again" if begun else "wants to run"
        self._terminal.say(f"{one_line(call.name)} {what}{why}:", "bold")
        self._terminal.say("  " + shown_arguments(call).replace("\n", "\n  "))
        while True:
            said = self._terminal.ask(_QUESTION)
            if said is None:  # Ctrl-D
                self._terminal.say("")
                return deny(call, reason=_REFUSED)
            word, _, reason = said.strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return approve(call)
                case "n" | "no":
                    return deny(call, reason=reason.strip() or (_NOT_AGAIN if begun else _REFUSED))
                case "a" | "always":
                    self._always(call, tool)
                    return approve(call)
                case "e" | "explain" | "?":
                    self._explain(call, tool)
                case _:
                    self._terminal.say("Answer y, n, a or e; behind n you may say why, for the model to read.")

    def _always(self, call: ToolCall, tool: AnyTool | None) -> None:
        rule = self._checker.suggest(call, tool)
        if rule is None:
            self._exactly.add((call.name, call.arguments))
        else:
            self._checker.allow(rule)
        self._terminal.say(f"Until the end of this session: {_said(rule)}", "dim")

    def _explain(self, call: ToolCall, tool: AnyTool | None) -> None:
        verdict = self._checker.judge(call, tool)
        lines = [f"Why you are asked: {one_line(verdict.reason) or 'the tool asks for it'}"]
        if tool is None:
            lines.append("The tool is not offered (any more); the call would fail.")
        else:
            lines.append(f"What it does: {one_line(tool.description) or '(it does not say)'}")
            lines.append("It says that it changes nothing." if tool.options.read_only else "It may change things.")
        lines.append(f"`always` would mean: {_said(self._checker.suggest(call, tool))}")
        for line in lines:
            self._terminal.say(f"  {line}")


def _said(rule: Rule | None) -> str:
    return "allow this tool with exactly these arguments" if rule is None else f"allow {rule.canonical}"
