"""The PermissionChecker: decide about a call, ask a person, remember the answer, write the audit line.

It is the executor's permission check, so the same rules apply to the API, an MCP server and the claude program, which
all run tools through an executor. A sync responder is called in the caller's thread or, on an event loop, in a thread
of its own.
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

from dragoman._crashes import log_crash
from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError, DragomanError, StoppedError, ToolError
from dragoman.toolkit.responder import PermissionAnswer, PermissionRequest, Responder
from dragoman.tools import Allow, AnyTool, Ask, Decision, Deny, PermissionCheck, ToolContext, WorkerThreads

from .commands import option_name
from .judge import CompiledRule, Verdict, compile_rule, decide
from .patterns import PathResolver, Root
from .rules import PermissionPolicy, Rule, labels_of_incomplete, policy_from, words_in
from .shell import read_shell
from .subject import READY_TOOLS, Subject, subject_of, with_commands

_AUDIT: Final = logging.getLogger("dragoman.audit")
_LOGGER: Final = logging.getLogger("dragoman.toolkit")
_INCOMPLETE: Final = (
    "The permissions allow whatever no rule denies, but commands can be written in more ways than a rule can know: %s. "
    'Better say default = "ask" (or "deny"), and list what may run.'
)
_MAX_RULES: Final = 1_000
"""Rules of a session; beyond them the oldest are forgotten."""


class PermissionChecker:
    """Decides about calls by rules. Safe to share between threads, event loops and executors.

    One checker is one session: the rules that a person wants remembered apply as long as the checker is used. Decisions
    are logged to `dragoman.audit`.
    """

    def __init__(
        self,
        policy: PermissionPolicy | Mapping[str, object] | None = None,
        *,
        workspace: str | os.PathLike[str] = ".",
        responder: Responder | None = None,
        door: str = "api",
    ) -> None:
        self._policy: PermissionPolicy = (
            policy_from(policy) if isinstance(policy, Mapping) else policy or PermissionPolicy()
        )
        self._root: Root = Root.of(workspace)
        self._rules: tuple[CompiledRule, ...] = tuple(compile_rule(each, self._root) for each in self._policy.rules)
        self._responder: Responder | None = responder
        self._door: str = door
        self._workers: WorkerThreads = WorkerThreads()
        self._lock: threading.Lock = threading.Lock()
        self._session: tuple[CompiledRule, ...] = ()
        """Rules that a person agreed to, the latest last."""
        if incomplete := labels_of_incomplete(self._policy):
            _LOGGER.warning(_INCOMPLETE, incomplete)

    # --- deciding ---

    def __call__(
        self, call: ToolCall, tool: AnyTool, context: ToolContext[object], *, door: str = ""
    ) -> Decision | Awaitable[Decision]:
        return self.check(call, tool, door=door)

    def at(self, door: str) -> PermissionCheck:
        """The same check for calls of another entry point, which the audit line names."""
        return partial(self, door=door)

    def judge(self, call: ToolCall, tool: AnyTool | None = None) -> Verdict:
        """Decide without asking a person, and without an audit line."""
        return self._decide(call, tool, subject_of(call, tool))[0]

    def _decide(self, call: ToolCall, tool: AnyTool | None, subject: Subject) -> tuple[Verdict, str]:
        """The verdict, and the arguments to run the call with if they are not its own."""
        verdict = decide(subject, self._policy, self._rules, self._session, PathResolver(self._root))
        if verdict.commands in ((), subject.commands):
            return verdict, ""
        arguments = with_commands(call, tool, verdict.commands)
        if arguments is None:
            return Verdict("ask", "its command cannot be replaced by what was judged", "error", verdict.rule), ""
        return verdict, arguments

    def check(self, call: ToolCall, tool: AnyTool | None = None, *, door: str = "") -> Decision | Awaitable[Decision]:
        """Decide about a call, even one that no executor runs, such as one of another program's own tools.

        Returns a decision or, if a person is asked on an event loop, an awaitable of one.
        """
        door = door or self._door
        try:
            subject = subject_of(call, tool)
        except ToolError:
            # The executor validates arguments before it asks; other callers may not. The reason does not quote them.
            subject = Subject(tool=call.name, read_only=False, unclear=True, arguments=call.arguments)
            return self._conclude(subject, Verdict("deny", "its arguments cannot be read", "error"), door)
        asked, arguments = self._decide(call, tool, subject)
        if asked.action != "ask" or self._responder is None:
            return self._conclude(subject, asked, door, arguments)
        ask = self._responder.ask_permission
        request = PermissionRequest(
            call=call,
            reason=asked.reason,
            rules=suggest_rules(subject, self._root),
            about="" if tool is None else tool.description.partition("\n")[0],
        )
        question = partial(_attempt, partial(ask, request))
        if inspect.iscoroutinefunction(ask):
            return self._await_answer(subject, asked, door, question)
        if _is_on_loop():
            return self._await_answer(subject, asked, door, lambda: asyncio.wrap_future(self._workers.submit(question)))
        answer = question()
        if inspect.isawaitable(answer):
            return self._await_answer(subject, asked, door, lambda: answer)
        return self._conclude(subject, self._read_answer(subject, answer, asked), door)

    async def _await_answer(
        self, subject: Subject, asked: Verdict, door: str, question: Callable[[], object]
    ) -> Decision:
        try:
            answer = question()
            while inspect.isawaitable(answer):
                answer = cast("object", await answer)
        except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
            answer = error
        return self._conclude(subject, self._read_answer(subject, answer, asked), door)

    def _read_answer(self, subject: Subject, given: object, asked: Verdict) -> Verdict:
        if given is None:
            return asked
        if isinstance(given, Exception):
            if not isinstance(given, StoppedError):
                log_crash(_LOGGER, "the function that asks about calls crashed, so one was denied", error=given)
            return Verdict("deny", f"the question could not be asked ({type(given).__name__})", "error")
        remember: object = getattr(given, "remember", None)
        for value, expected in ((given, PermissionAnswer), (remember, Rule | None)):
            if not isinstance(value, expected):  # the responder is foreign code
                return Verdict("deny", f"the answer was of type {type(value).__name__}", "error")
        answer = cast("PermissionAnswer", given)
        action, reason = ("allow", "the user allowed it") if answer.allowed else ("deny", "the user refused")
        if answer.remember is not None:
            # The rule applies only to the tool that was shown.
            version = answer.remember.version or subject.version
            try:
                self.remember(structs.replace(answer.remember, action=action, version=version, reason=answer.reason))
            except DragomanError as error:
                return Verdict("deny", f"the rule cannot be remembered: {error.message}", "error")
        return Verdict(action, answer.reason or reason, "person", asked.rule)

    def _conclude(self, subject: Subject, verdict: Verdict, door: str, arguments: str = "") -> Decision:
        audit(subject, verdict, door=door)
        match verdict.action:
            case "allow":
                # A person who said yes, now or for the session, is not asked again by a tool that needs approval.
                return Allow(approved=verdict.source in ("person", "session"), arguments=arguments)
            case "deny":
                return Deny(verdict.reason)
            case "ask":
                return Ask(verdict.reason)

    # --- the session ---

    def suggest(self, call: ToolCall, tool: AnyTool | None = None) -> tuple[Rule, ...]:
        """The rules that could be remembered about this call: one for exactly this call, then wider ones.

        `rule.text` describes what each of them allows. Raises ToolValidationError if the arguments are invalid.
        """
        return suggest_rules(subject_of(call, tool), self._root)

    def remember(self, rule: Rule) -> None:
        """Apply this rule for the rest of the session. Rules of the policy that deny still win."""
        compiled = compile_rule(rule, self._root)
        with self._lock:
            others = [each for each in self._session if each.rule != rule]
            self._session = (*others[-_MAX_RULES + 1 :], compiled)

    def forget(self) -> None:
        """Forget all rules of the session."""
        self._session = ()


def _attempt(ask: Callable[[], object]) -> object:
    """The answer, or the error: StopIteration cannot be set on a future of asyncio, which would never be done."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
        return error


def _is_on_loop() -> bool:
    """Whether an event loop runs in this thread, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# --- rules to remember -----------------------------------------------------------------------------------------------

_READERS: Final = words_in("cat cut diff du file grep head ls md5sum nl sha256sum stat tail tree wc")
"""Programs that only read, whatever operands follow."""
_GIT_READERS: Final = words_in("blame diff log ls-files show status")


def suggest_rules(subject: Subject, root: Root) -> tuple[Rule, ...]:
    """The rule for exactly this call, then a wider one that a person may choose instead.

    A wider rule is offered only if its text describes all that it allows: for files, pages and commands that only read,
    whose arguments are known, and for a tool as a whole. Both apply only until the tool changes.
    """
    literally = "".join([f"[{letter}]" if letter in "*?[" else letter for letter in subject.tool])
    base = Rule(action="allow", tool=literally, version=subject.version)
    exact = structs.replace(base, arguments=subject.arguments)
    with suppress(ConfigurationError, OSError, ValueError):  # not a URL, or not a file name
        wider = _wider(base, subject, root)
        if wider is not None and compile_rule(wider, root).covers(subject, PathResolver(root)):
            return (exact, wider)
    return (exact,)


def _wider(base: Rule, subject: Subject, root: Root) -> Rule | None:
    if subject.tool not in READY_TOOLS:
        # The arguments of other tools are not known: the whole tool, or nothing.
        return base if subject.version != "unknown" else None
    if subject.commands:
        return _for_command(base, subject.commands[0])
    if subject.urls:
        # A URL that is not of the plainest form gives no valid host pattern.
        origins = {re.split(r"(?<=[^:/])[/?#]", url)[0] for url in subject.urls}
        return structs.replace(base, host=tuple(sorted(origins)))
    if subject.paths:
        folders = tuple(sorted({_folder(path, root) for path in subject.paths}))
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
    if any("=" in word for word in options):  # the rule would allow any other value
        return None
    return structs.replace(base, command=" ".join(words[:count]), options=tuple(options), path=".")


def _folder(path: str, root: Root) -> str:
    real = os.path.realpath(os.path.join(root.real, path))  # noqa: PTH118
    folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120
    if folder == root.real:  # the whole workspace would be too much for one file
        folder = real
    inside = os.path.relpath(folder, root.real)
    return inside if not inside.startswith("..") else folder


# --- the audit line --------------------------------------------------------------------------------------------------

_SHOWN_DIGITS: Final = 16
_MAX_SHOWN: Final = 300
_WORD: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)


def audit(subject: Subject, verdict: Verdict, *, door: str) -> None:
    """Log one line of key=value pairs; the same fields are on the record as `permission`.

    Arguments may hold secrets, so only a hash of them is written, the same at every entry point. If the program has not
    set up logging, nothing is written, not even by Python's last resort on stderr.
    """
    level = logging.WARNING if verdict.action == "deny" else logging.INFO
    if not _AUDIT.isEnabledFor(level) or not _AUDIT.hasHandlers():
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
    # An argument rather than the format, because a rule may contain percent signs.
    _AUDIT.log(level, "%s", line, extra={"permission": fields})


def _quote(text: str) -> str:
    """Quote a text unless it is a plain word, so that it cannot be mistaken for several values or lines."""
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    if _WORD.fullmatch(cut):
        return cut
    quoted = msgspec.json.encode(cut.encode("utf-8", "replace").decode()).decode()
    return "".join([each if each.isprintable() else f"\\u{ord(each):04x}" for each in quoted])
