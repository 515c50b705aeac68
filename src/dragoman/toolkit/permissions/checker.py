"""The PermissionChecker: one policy for every call, whichever door it comes through.

It is the executor's permission check, so that the API, an MCP server and the claude program, which all run tools
through an executor, are under the same rules. Deciding takes no time; only a question waits, in the colour of the run:
a plain responder is asked in the caller's own thread, or, on an event loop, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, cast

import msgspec
from msgspec import structs

from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError, DragomanError, ToolError
from dragoman.toolkit.responder import AsksPermission, PermissionAnswer, PermissionRequest
from dragoman.tools import Allow, AnyTool, Ask, Decision, Deny, PermissionCheck, ToolContext, WorkerThreads

from .judge import CompiledRule, Verdict, compile_rule, decide
from .places import Places, Surroundings
from .rules import PermissionPolicy, Rule, policy_from, words_in
from .shell import option_name, read_shell
from .subject import READY_TOOLS, Subject, subject_of

_AUDIT: Final = logging.getLogger("dragoman.audit")
_MOST_RULES: Final = 1_000
"""Rules of a session that are kept; beyond them the oldest are forgotten, and asked about again."""


class PermissionChecker:
    """Decides about calls by rules. Safe to share between threads, event loops and executors.

    One checker is one session: a rule that a person wants to be remembered holds for as long as the checker is used.
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
        self._policy: PermissionPolicy = (
            policy_from(policy) if isinstance(policy, Mapping) else policy or PermissionPolicy()
        )
        self._around: Surroundings = Surroundings.of(workspace, home)
        self._rules: tuple[CompiledRule, ...] = tuple(compile_rule(each, self._around) for each in self._policy.rules)
        self._responder: AsksPermission | None = responder
        self._logger: logging.Logger = logger or _AUDIT
        self._door: str = door
        self._workers: WorkerThreads = WorkerThreads()
        self._lock: threading.Lock = threading.Lock()
        self._session: tuple[CompiledRule, ...] = ()
        """Rules that a person has agreed to, the latest last."""

    # --- deciding ---

    def __call__(
        self, call: ToolCall, tool: AnyTool, context: ToolContext[object], *, door: str = ""
    ) -> Decision | Awaitable[Decision]:
        return self.check(call, tool, door=door)

    def at(self, door: str) -> PermissionCheck:
        """The same check, for calls that come through another door; the audit line says which."""
        return partial(self, door=door)

    def judge(self, call: ToolCall, tool: AnyTool | None = None) -> Verdict:
        """What would be decided and why, without asking anybody and without an audit line."""
        return self._decide(subject_of(call, tool))

    def _decide(self, subject: Subject) -> Verdict:
        return decide(subject, self._policy, self._rules, self._session, Places(self._around))

    def check(self, call: ToolCall, tool: AnyTool | None = None, *, door: str = "") -> Decision | Awaitable[Decision]:
        """Decide about a call, also one that no executor runs, such as one of a program's own tools.

        A decision, or an awaitable of one where a person is asked on an event loop.
        """
        door = door or self._door
        try:
            subject = subject_of(call, tool)
        except ToolError:
            # The executor has read the arguments before it asks; whoever has not gets a refusal, and a line. What is
            # wrong with them is not said here: it would quote them.
            subject = Subject(tool=call.name, read_only=False, unclear=True, arguments=call.arguments)
            return self._conclude(subject, Verdict("deny", "its arguments cannot be read", "error"), door)
        asked = self._decide(subject)
        if asked.action != "ask" or self._responder is None:
            return self._conclude(subject, asked, door)
        rules = suggest_rules(subject, self._around)
        ask = self._responder.ask_permission
        about = "" if tool is None else tool.description.partition("\n")[0]
        request = PermissionRequest(call=call, reason=asked.reason, rules=rules, about=about)
        question = partial(_attempt, partial(ask, request))
        if inspect.iscoroutinefunction(ask):
            return self._await_answer(subject, asked, door, question)
        if _is_on_loop():
            return self._await_answer(subject, asked, door, lambda: asyncio.wrap_future(self._workers.submit(question)))
        said = question()
        if inspect.isawaitable(said):  # a plain function that is not: its question begins with the awaiting
            return self._await_answer(subject, asked, door, lambda: said)
        return self._conclude(subject, self._read_answer(subject, said, asked), door)

    async def _await_answer(
        self, subject: Subject, asked: Verdict, door: str, question: Callable[[], object]
    ) -> Decision:
        try:
            said = question()
            while inspect.isawaitable(said):
                said = cast("object", await said)
        except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
            said = error
        return self._conclude(subject, self._read_answer(subject, said, asked), door)

    def _read_answer(self, subject: Subject, said: object, asked: Verdict) -> Verdict:
        if said is None:
            return asked
        if isinstance(said, Exception):
            return Verdict("deny", f"the question could not be asked ({type(said).__name__})", "error")
        remember: object = getattr(said, "remember", None)
        for given, expected in ((said, PermissionAnswer), (remember, Rule | None)):
            if not isinstance(given, expected):  # it comes from foreign code
                return Verdict("deny", f"the answer was of type {type(given).__name__}", "error")
        answer = cast("PermissionAnswer", said)
        action, reason = ("allow", "the user allowed it") if answer.allowed else ("deny", "the user refused")
        if answer.remember is not None:
            # Whatever the rule says, it is about the tool that was shown.
            version = answer.remember.version or subject.version
            try:
                self.remember(structs.replace(answer.remember, action=action, version=version, reason=answer.reason))
            except DragomanError as error:
                return Verdict("deny", f"the rule cannot be remembered: {error.message}", "error")
        return Verdict(action, answer.reason or reason, "person", asked.rule)

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

    # --- the session ---

    def suggest(self, call: ToolCall, tool: AnyTool | None = None) -> tuple[Rule, ...]:
        """What could be remembered about this call, before it is: a rule for exactly this call, then wider ones.

        `rule.text` says in words what each of them allows. Raises ToolValidationError if the arguments cannot be read.
        """
        return suggest_rules(subject_of(call, tool), self._around)

    def remember(self, rule: Rule) -> None:
        """Let this rule answer questions for the rest of the session. Rules of the policy that deny still win."""
        compiled = compile_rule(rule, self._around)
        with self._lock:
            others = [each for each in self._session if each.rule != rule]
            self._session = (*others[-_MOST_RULES + 1 :], compiled)

    def forget(self) -> None:
        """Forget all rules of the session."""
        self._session = ()


def _attempt(ask: Callable[[], object]) -> object:
    """What was said, or the error: a future of asyncio that a StopIteration is put into would never be done."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
        return error


def _is_on_loop() -> bool:
    """Whether an event loop runs in this thread, so that nothing here may block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# --- rules to remember -----------------------------------------------------------------------------------------------

_READERS: Final = words_in("cat cut diff du file grep head ls md5sum nl sha256sum stat tail tree wc")
"""Programs that only read, whatever words follow; their options are those of the call."""
_GIT_READERS: Final = words_in("blame diff log ls-files show status")


def suggest_rules(subject: Subject, around: Surroundings) -> tuple[Rule, ...]:
    """The rule for exactly this call, then a wider one that a person may choose instead, never "always" by itself.

    A wider rule is offered only where its text says all that it allows: for files, pages and commands that read, of
    which the meaning of every argument is known, and for a tool as a whole. Both hold only until the tool changes.
    """
    literally = "".join([f"[{letter}]" if letter in "*?[" else letter for letter in subject.tool])
    base = Rule(action="allow", tool=literally, version=subject.version)
    exact = structs.replace(base, arguments=subject.arguments)
    with suppress(ConfigurationError, OSError, ValueError):  # no address, or no file name: then no rule either
        wider = _wider(base, subject, around)
        if wider is not None and compile_rule(wider, around).covers(subject, Places(around)):
            return (exact, wider)
    return (exact,)


def _wider(base: Rule, subject: Subject, around: Surroundings) -> Rule | None:
    if subject.tool not in READY_TOOLS:
        # Of other tools nobody knows what an argument does: all of the tool, or nothing.
        return base if subject.version != "unknown" else None
    if subject.commands:
        return _for_command(base, subject.commands[0])
    if subject.urls:
        # Whatever is not the plainest form of an address is no pattern for hosts.
        origins = {re.split(r"(?<=[^:/])[/?#]", url)[0] for url in subject.urls}
        return structs.replace(base, host=tuple(sorted(origins)))
    if subject.paths:
        folders = tuple(sorted({_folder(path, around) for path in subject.paths}))
        is_pattern = any(letter in folder for folder in folders for letter in "*?[")
        return None if is_pattern else structs.replace(base, path=folders)
    return base


def _for_command(base: Rule, text: str) -> Rule | None:
    command = read_shell(text).simple
    if command is None:
        return None
    words = [word.text for word in command.words]
    is_git = words[0] == "git" and len(words) > 1 and words[1] in _GIT_READERS
    if not is_git and words[0] not in _READERS:
        return None
    count = 1 + is_git
    options = sorted({word for word in words[count:] if option_name(word)})
    if any("=" in word for word in options):  # whatever else could be its value
        return None
    return structs.replace(base, command=" ".join(words[:count]), options=tuple(options), path=".")


def _folder(path: str, around: Surroundings) -> str:
    real = os.path.realpath(os.path.join(around.real, path))  # noqa: PTH118
    folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120
    if folder == around.real:  # all of the workspace would be too much for one file
        folder = real
    inside = os.path.relpath(folder, around.real)
    return inside if not inside.startswith("..") else folder


# --- the audit line --------------------------------------------------------------------------------------------------

_SHOWN_DIGITS: Final = 16
_LONGEST: Final = 300
_WORD: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)


def audit(logger: logging.Logger, subject: Subject, verdict: Verdict, *, door: str) -> None:
    """Write one line of key=value pairs; the same fields are on the record as `permission`.

    Arguments are the user's data and may hold secrets: only a hash of them is written, the same on every door. Where
    the program has set up no logging at all nothing is written, not even Python's last resort on stderr.
    """
    level = logging.WARNING if verdict.action == "deny" else logging.INFO
    if not logger.isEnabledFor(level) or not logger.hasHandlers():
        return
    fields = {
        "tool": subject.tool,
        "arguments": subject.fingerprint[:_SHOWN_DIGITS],
        "decision": verdict.action,
        "by": verdict.source,
        "rule": verdict.rule or "-",
        "reason": verdict.reason or "-",
        "door": door,
    }
    line = " ".join([f"{key}={_quote(value)}" for key, value in fields.items()])
    # As an argument rather than as the format: a percent sign in a rule is no place to put something.
    logger.log(level, "%s", line, extra={"permission": fields})


def _quote(text: str) -> str:
    """A text that cannot be taken for more than one value, nor for more than one line."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    if _WORD.fullmatch(cut):
        return cut
    quoted = msgspec.json.encode(cut.encode("utf-8", "replace").decode()).decode()
    return "".join([each if each.isprintable() else f"\\u{ord(each):04x}" for each in quoted])
