"""The PermissionChecker: one policy for every call, whichever door it comes through.

Owns: the way from a call to a decision: judge, remember, ask, write the audit line.
Must not know: how rules are matched, and what a person sees.

It is the executor's permission check, so that the API, an MCP server and the claude program, which all run tools
through an executor, are under the same rules. Deciding takes no time; only a question waits, in the colour of the run:
a plain responder is asked in the caller's own thread, or, on an event loop, in a thread of its own.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, cast

import msgspec

from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError, ToolError
from dragoman.toolkit.responder import PermissionAnswer, PermissionRequest
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool
from dragoman.tools.call import discard
from dragoman.tools.permission import Allow, Ask, Decision, Deny, PermissionCheck

from .audit import AUDIT, audit
from .conditions import compile_rule
from .judgement import Judge, Verdict
from .match import Match
from .paths import Surroundings
from .policy_file import policy_from
from .questions import Answer, AsksPermission, Later, RuleAnswer, Turns, in_thread, is_on_loop, is_plain
from .rules import PermissionPolicy, Rule
from .session import Session
from .subject import Subject, subject_of
from .suggestion import suggested_rule

__all__ = ["PermissionChecker"]


class PermissionChecker:
    """Decides about calls by rules. Safe to share between threads, event loops and executors.

    One checker is one session: what a person answers with "always" holds for as long as the checker is used. A
    responder must not run tools under the same checker while it asks: that question would wait for itself.
    """

    def __init__(
        self,
        policy: PermissionPolicy | Mapping[str, object] | None = None,
        *,
        workspace: str | os.PathLike[str] = ".",
        home: str | os.PathLike[str] | None = None,
        responder: AsksPermission | None = None,
        logger: logging.Logger | None = None,
        door: str = "api",
    ) -> None:
        rules = policy_from(policy) if isinstance(policy, Mapping) else policy or PermissionPolicy()
        self._judge: Judge = Judge(rules, Surroundings.of(workspace, home))
        self._responder: AsksPermission | None = responder
        self._logger: logging.Logger = logger or AUDIT
        self._door: str = door
        self._session: Session = Session()
        self._turns: Turns = Turns()

    @property
    def policy(self) -> PermissionPolicy:
        """The rules that it goes by."""
        return self._judge.policy

    # --- the executor's check ---

    def __call__(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        return self._check(call, tool, self._door)

    def at(self, door: str) -> PermissionCheck:
        """The same check, for calls that come through another door; the audit line says which."""

        def check(call: ToolCall, tool: AnyTool, _: ToolContext[object]) -> Decision | Awaitable[Decision]:
            return self._check(call, tool, door)

        return cast("PermissionCheck", check)

    # --- without an executor ---

    def judge(self, call: ToolCall, tool: AnyTool | None = None) -> Verdict:
        """What would be decided and why, without asking anybody and without an audit line."""
        return self._verdict(subject_of(call, tool))

    def check(self, call: ToolCall, tool: AnyTool | None = None, *, door: str = "") -> Decision | Awaitable[Decision]:
        """Decide about a call that no executor runs, such as one of a program's own tools.

        As for the executor: a decision, or an awaitable of one where a person is asked on an event loop.
        """
        return self._check(call, tool, door or self._door)

    async def acheck(self, call: ToolCall, tool: AnyTool | None = None, *, door: str = "") -> Decision:
        """`check` on the caller's event loop."""
        said = self._check(call, tool, door or self._door)
        return await said if isinstance(said, Awaitable) else said

    # --- the session ---

    def suggest(self, call: ToolCall, tool: AnyTool | None = None) -> Rule | None:
        """A rule that would allow this call and others like it, to offer to the person who is asked; None if unsure."""
        return suggested_rule(subject_of(call, tool), self._judge.around)

    def allow(self, rule: Rule) -> None:
        """Let this rule answer questions for the rest of the session. Rules that deny still win."""
        self._session.add(compile_rule(msgspec.structs.replace(rule, action="allow"), self._judge.around))

    def forget(self) -> None:
        """Forget all answers of the session."""
        self._session.forget()

    # --- inside ---

    def _verdict(self, subject: Subject) -> Verdict:
        session = self._session
        return self._judge.decide(subject, answer=session.answer_to(subject), also_allow=session.rules)

    def _check(self, call: ToolCall, tool: AnyTool | None, door: str) -> Decision | Awaitable[Decision]:
        try:
            subject = subject_of(call, tool)
        except ToolError:
            # The executor has read the arguments before it asks; whoever has not gets a refusal, and a line. What is
            # wrong with them is not said here: it would quote them.
            subject = Subject(tool=call.name, read_only=False, arguments={}, unclear=True)
            return self._conclude(subject, Verdict("deny", "its arguments cannot be read", "error"), door)
        verdict = self._verdict(subject)
        if verdict.action != "ask" or self._responder is None:
            return self._conclude(subject, verdict, door)
        ask = self._responder.ask_permission
        if is_plain(ask) and not is_on_loop():
            return self._ask_plainly(call, subject, door, ask)
        return self._ask_on_loop(call, subject, door, ask)

    def _ask_plainly(
        self, call: ToolCall, subject: Subject, door: str, ask: Callable[[PermissionRequest], object]
    ) -> Decision | Awaitable[Decision]:
        with self._turns.plain():
            verdict = self._verdict(subject)  # the question before may have answered this one
            if verdict.action != "ask":
                return self._conclude(subject, verdict, door)
            try:
                said = ask(PermissionRequest(call=call, reason=verdict.reason))
            except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
                return self._conclude(subject, _failed(error), door)
            if not inspect.isawaitable(said):
                return self._answered(subject, said, verdict, door)
        return Later(cast("Awaitable[object]", said), lambda answer: self._awaited(subject, answer, door))

    async def _awaited(self, subject: Subject, said: Awaitable[object], door: str) -> Decision:
        """A plain function that returned an awaitable after all: its question begins here, and waits for its turn."""
        async with self._turns.on_loop():
            verdict = self._verdict(subject)
            if verdict.action != "ask":
                discard(said)
                return self._conclude(subject, verdict, door)
            try:
                answer = await said
            except Exception as error:  # noqa: BLE001 -- as above
                return self._conclude(subject, _failed(error), door)
            return self._answered(subject, answer, verdict, door)

    async def _ask_on_loop(
        self, call: ToolCall, subject: Subject, door: str, ask: Callable[[PermissionRequest], object]
    ) -> Decision:
        async with self._turns.on_loop():
            verdict = self._verdict(subject)
            if verdict.action != "ask":
                return self._conclude(subject, verdict, door)
            request = PermissionRequest(call=call, reason=verdict.reason)
            try:
                said = await in_thread(lambda: ask(request)) if is_plain(ask) else ask(request)
                if inspect.isawaitable(said):
                    said = await cast("Coroutine[Any, Any, object]", said)
            except Exception as error:  # noqa: BLE001 -- as above
                return self._conclude(subject, _failed(error), door)
            return self._answered(subject, said, verdict, door)

    def _answered(self, subject: Subject, said: object, asked: Verdict, door: str) -> Decision:
        verdict = self._taken(subject, cast("Answer", said), asked)
        return self._conclude(subject, verdict, door)

    def _taken(self, subject: Subject, answer: Answer, asked: Verdict) -> Verdict:
        """What an answer means, and keep it if it is to be kept."""
        if answer is None:
            return asked
        if isinstance(answer, RuleAnswer):
            return self._taken_rule(subject, answer.rule)
        if not isinstance(answer, PermissionAnswer):  # pyright: ignore[reportUnnecessaryIsInstance] -- foreign code
            return Verdict("deny", f"the answer was of type {type(answer).__name__}", "error")
        if answer.allowed:
            verdict = Verdict("allow", answer.reason or "the user allowed it", "person", asked.rule)
        else:
            verdict = Verdict("deny", answer.reason or "the user refused", "person", asked.rule)
        if answer.remember == "session":
            self._session.remember(subject, msgspec.structs.replace(verdict, source="session"))
        return verdict

    def _taken_rule(self, subject: Subject, rule: Rule) -> Verdict:
        """A rule that the person agreed to. It must speak of the very call that was asked about."""
        try:
            compiled = compile_rule(rule, self._judge.around)
        except ConfigurationError as error:
            return Verdict("deny", f"the rule that was answered cannot be used: {error.message}", "error")
        if rule.action == "allow" and compiled.covers(subject):
            self._session.add(compiled)
            return Verdict("allow", rule.reason or "the user allowed it", "person", rule.label)
        if rule.action == "deny" and compiled.touches(subject) is Match.YES:
            verdict = Verdict("deny", rule.reason or "the user refused", "person", rule.label)
            self._session.remember(subject, msgspec.structs.replace(verdict, source="session"))
            return verdict
        return Verdict("deny", "the rule that was answered does not fit the call", "error", rule.label)

    def _conclude(self, subject: Subject, verdict: Verdict, door: str) -> Decision:
        audit(self._logger, subject, verdict, door=door)
        match verdict.action:
            case "allow":
                # Who has just said yes, or yes for the session, is not asked again by a tool that wants approval.
                return Allow(approved=verdict.source in ("person", "session"))
            case "deny":
                return Deny(verdict.reason)
            case "ask":
                return Ask(verdict.reason)


def _failed(error: Exception) -> Verdict:
    return Verdict("deny", f"the question could not be asked ({type(error).__name__})", "error")
