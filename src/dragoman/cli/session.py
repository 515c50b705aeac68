"""Session: a client from the arguments, with its tools, permissions and store, and its turns; and asking for approval.

The user is asked about a call between two runs of the loop, not inside one: the conversation is stored by then, so a
program that is killed at the question asks it again when it is continued.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Final

from msgspec import Struct, structs

from dragoman.chat import ChatClient, ChatOptions, LoadedConfig, Prompt, new
from dragoman.conversation import Conversation, StopReason, ToolCall, source_lines
from dragoman.errors import ConfigurationError, StepLimitError, StoreError
from dragoman.loop import Limits, NoAnswer, RunResult, next_step
from dragoman.stores import ConversationStore
from dragoman.toolkit import ConsoleResponder, PermissionChecker, PermissionRequest, skills_prompt
from dragoman.tools import (
    Allow,
    AnyTool,
    Approval,
    Ask,
    Decision,
    Deny,
    PendingApproval,
    ToolContext,
    ToolRegistry,
    ToolSet,
    approve,
    deny,
)

from .arguments import Approve, clean
from .failures import LIMIT, NEEDS_APPROVAL, NO_ANSWER, OK
from .history import find_conversation, open_store
from .instructions import read_instructions
from .output import TextView, View
from .settings import Settings, clean_models, fetch_models, load_with, read_settings, settle_model
from .terminal import Terminal, to_line
from .tools import ToolChoice

_ENDINGS: Final = {
    StopReason.MAX_TOKENS: (LIMIT, "The answer was cut off at the token limit. Raise it: -o max_tokens 8000"),
    StopReason.CONTEXT_FULL: (LIMIT, "The model's context window is full. Start a new conversation."),
    StopReason.REFUSAL: (NO_ANSWER, "The model declined to answer. Rephrase the question."),
    StopReason.CONTENT_FILTER: (NO_ANSWER, "The provider withheld the answer. Rephrase the question."),
}
"""Endings after which the answer is not a complete one."""
_LOOP: Final = logging.getLogger("dragoman.loop")


def _say_nothing(_record: logging.LogRecord) -> bool:
    """A filter: what is wrong with an answer is said by `tell_ending`, once and in the words of the command line."""
    return False


class Session(ExitStack):
    """Everything that a conversation needs. What it opens is closed when its `with` block ends."""

    def __init__(self, arguments: Namespace, terminal: Terminal, *, reads_instructions: bool = False) -> None:
        super().__init__()
        self.arguments: Namespace = arguments
        self.terminal: Terminal = terminal
        terminal.quiet = arguments.quiet
        self._continues: bool = arguments.go_on or arguments.cid is not None
        self._instructions: str = ""
        """The project's instructions for models, if the user agreed."""
        try:
            self._begin(reads_instructions=reads_instructions)
        except BaseException:
            self.close()
            raise

    def _begin(self, *, reads_instructions: bool) -> None:
        self.enter_context(self.terminal.reserve_stdout())
        _LOOP.addFilter(_say_nothing)
        self.callback(_LOOP.removeFilter, _say_nothing)
        self.loaded: LoadedConfig = load_with(self.arguments)
        self.settings: Settings = read_settings(self.loaded)
        self.store: ConversationStore | None = self._open_store()
        continued = None
        if self.store is not None and self._continues:
            continued = find_conversation(self.store, self.arguments.cid)
            model, config = f"{continued.provider}:{continued.model}", self.loaded.config
            is_configured = isinstance(config.model, tuple) and config.model_name == model
            if self.arguments.model is None and not is_configured:
                self.loaded = self.loaded.change(model=model)
        self.loaded = settle_model(self.loaded, self.terminal)
        choice = ToolChoice(self.settings, self.terminal, self)
        self.build_tools: Callable[[Iterable[str]], ToolRegistry] = choice.build
        checker = PermissionChecker(self.settings.policy, workspace=self.settings.directory, door="cli")
        self.approver: Approver = Approver(self.arguments.approve or self.settings.cli.approve, self.terminal, checker)
        tools = self.build_tools(self.arguments.tools or self.settings.cli.tools)
        wants_instructions = self.settings.cli.instructions and getattr(self.arguments, "instructions", True)
        if wants_instructions and not self._continues:
            directory = self.settings.directory if reads_instructions else None
            self.loaded, self._instructions = read_instructions(self.loaded, self.terminal, directory)
        # Last, so that wrong arguments do not cost a download.
        fetch_models(self.loaded.config.model_names, self.terminal)
        # A continued conversation keeps its own, which is sent by a client that has none.
        system = None if continued is not None else self._make_system(tools)
        self.client: ChatClient = self._make_client(tools, system)
        self.callback(lambda: self.client.close())  # noqa: PLW0108 -- the client may change
        if continued is not None:
            self.client.restore(continued.root)  # what the model cannot take is logged when it is asked
            if self.arguments.system is not None:
                self.use_system(clean(self.arguments.system))

    def _open_store(self) -> ConversationStore | None:
        if not self._continues and (self.arguments.no_log or not self.settings.cli.log):
            return None
        try:
            return self.enter_context(open_store())
        except (StoreError, ConfigurationError) as error:
            if self._continues:
                raise
            self.terminal.say(f"dragoman: this conversation is not kept: {error.message}", "yellow")
            return None

    # --- clients ---

    def _make_system(self, tools: ToolSet) -> str:
        return make_system(self.loaded, self.settings, tools, self._instructions)

    def _make_client(self, tools: ToolRegistry, system: str | None) -> ChatClient:
        given: ChatOptions = {"permission": self.approver.check, "system": system}
        return new(self.loaded.config, tools, store=self.store, **given)

    def begin_anew(self, system: str | None = None) -> None:
        """Start a new conversation with the same model and tools, and another system prompt if one is given."""
        tools = self.client.tools.tools.clone()
        old = self.client
        self.client = self._make_client(tools, self._make_system(tools) if system is None else system)
        old.close()

    @property
    def system(self) -> str:
        """The system prompt that is sent; empty if there is none. That of an agent in charge may have functions."""
        system = self.client.system or ""
        parts = [system] if isinstance(system, str) else system
        return "\n\n".join([each if isinstance(each, str) else f"(what {_name(each)} says)" for each in parts])

    def use_system(self, system: str) -> None:
        """Send this system prompt from now on, and keep it with the conversation; none if it is empty."""
        if system != self.system:
            self.client.system = system
            if self.is_kept:
                self.client.save()

    def rewrite(self, change: Callable[[Conversation], Conversation]) -> None:
        """Change the messages; the store keeps the earlier version."""
        if self.client.uncertain:
            message = "A tool call was running when the program was stopped, and needs your decision."
            raise ConfigurationError(message, hint="Continue and decide first; then change the conversation.")
        changed = change(self.client.conversation)
        if not changed.messages:
            self.begin_anew(self.system if self.client.agent is None else None)
        elif changed != self.client.conversation:
            following = self.client.save().next(changed)
            if self.store is not None:
                self.store.save(following)
            self.client.restore(following)

    def fork(self) -> None:
        """Continue in a copy of the conversation."""
        old, self.client = self.client, self.client.fork()
        old.close()

    def use_model(self, name: str) -> tuple[object, ...]:
        """Switch to another model; returns what it will not get of the history."""
        loaded = self.loaded.change(model=clean_models(name))
        fetch_models(loaded.config.model_names, self.terminal)
        losses = self.client.switch(loaded.config.model_names, **loaded.config.for_engine())
        self.loaded = loaded
        return losses

    # --- turns ---

    def make_view(self) -> View:
        """The view of a turn: rendered on a terminal, plain text elsewhere or if the user prefers it."""
        terminal, model = self.terminal, self.client.model
        waiting = f"{'loading' if model.startswith('local:') else 'waiting for'} {model}"
        is_rich = terminal.out_is_tty and terminal.err_is_tty and terminal.environ.get("TERM") != "dumb"
        if is_rich and self.settings.cli.markdown and not terminal.quiet and find_spec("rich") is not None:
            from .chat_screen import Screen

            return Screen(terminal, waiting)
        return TextView(terminal, waiting)

    def can_continue(self) -> bool:
        """Whether the model can continue without a new message."""
        last = self.client.conversation.last
        if last is None or (last.role == "assistant" and not self.client.pending):
            return False
        return not isinstance(next_step(self.client.conversation, Limits()), NoAnswer)

    def take_turn(self, prompt: Prompt | None, view: View) -> RunResult:
        """Let the model answer, or, without a prompt, continue; ask about calls in between.

        There is a run of the loop between two questions; the limit of steps applies to all of them together.
        """
        client, steps, sources = self.client, 0, list[str]()
        most = client.tools.config.max_iterations
        approvals: list[Approval] = []
        if prompt is None and client.uncertain:
            # With a prompt, the calls are refused. The loop asks about calls that had not begun.
            approvals = self.approver.answer(client.uncertain, client.tools.tools, client.uncertain)
        try:
            while True:
                try:
                    with client.stream_chat(prompt, approvals=approvals) as stream:
                        view.wait()
                        for event in stream:
                            view.show(event)
                finally:
                    view.pause()
                if not stream.result.pending:
                    sources = source_lines(stream.result.citations)
                    return stream.result
                steps += stream.result.spent.steps
                if steps >= most:
                    message = f"{self.waiting}max iterations ({most}) reached"
                    raise StepLimitError(message, conversation=client.conversation, limit="steps")
                approvals = self.approver.answer(stream.result.pending, client.tools.tools, client.uncertain)
                prompt = None
        finally:
            view.end(sources)

    def tell_ending(self, result: RunResult) -> int:
        """Say what is wrong with the answer, if something is; the exit code for such an end."""
        if self.approver.refused:
            return NEEDS_APPROVAL
        if not result.note:
            return OK
        usual = (NO_ANSWER if isinstance(result.ending, NoAnswer) else OK, result.note)
        code, words = usual if result.stop_reason is None else _ENDINGS.get(result.stop_reason, usual)
        self.terminal.say(f"dragoman: {words}", "yellow")
        return code

    # --- the store ---

    @property
    def is_kept(self) -> bool:
        """Whether the conversation can be continued later."""
        return self.store is not None and bool(self.client.history)

    @property
    def waiting(self) -> str:
        """What to say of the calls that wait for the user, before anything else; "" if there are none."""
        count = len(self.client.pending)
        return f"{count} {'call waits' if count == 1 else 'calls wait'} for your approval; " if count else ""

    def drop_empty(self) -> None:
        """Delete a conversation without messages, because the first turn failed, from the store."""
        if self.store is not None and self.client.id is not None and not self.client.history:
            self.store.delete(self.client.id)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


def make_system(loaded: LoadedConfig, settings: Settings, tools: ToolSet, instructions: str = "") -> str:
    """The system prompt: the configured one, the project's instructions and the list of skills."""
    skills = skills_prompt(settings.skills) if tools.find("Skill") is not None else ""
    return "\n\n".join([part for part in (clean(loaded.config.system_prompt), instructions, skills) if part])


# --- asking for approval ----------------------------------------------------------------------------------------------

_REFUSED: Final = "the user refused"
_NOBODY: Final = "there was nobody to approve it"
_NOT_AGAIN: Final = (
    "it was running when the program was stopped, and may have done its work; find out before you try again"
)


class Approver(Struct):
    """Decides about calls that need approval: by asking the user, or always the same way."""

    mode: Approve
    _terminal: Terminal
    _checker: PermissionChecker
    refused: int = 0
    """How many calls were refused because there was nobody to ask."""

    def check(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        """The permission check of the executor: the rules, and in mode `auto` yes to what they would ask."""
        decision = self._checker(call, tool, context)
        return Allow() if isinstance(decision, Ask) and self.mode == "auto" else decision

    def decide(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        """The same where `answer` is not used, as on the page; in mode `deny`, no to what would be asked."""
        decision = self.check(call, tool, context)
        if self.mode == "deny" and (isinstance(decision, Ask) or _asks(call, tool, decision)):
            return Deny("calls that need approval are refused here; allow it in [permissions]")
        return decision

    def answer(
        self, pending: Iterable[PendingApproval], tools: ToolSet, uncertain: Collection[PendingApproval] = ()
    ) -> list[Approval]:
        """Decide about each pending call. Those that are `uncertain` may have done their work already."""
        begun = {each.call.id for each in uncertain}
        found = [(each, each.tool_among(tools)) for each in pending]
        return [self._answer(each, tool, begun=each.call.id in begun) for each, tool in found]

    def _answer(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call = pending.call
        verdict = self._checker.judge(call, tool)
        remembered = verdict.action if verdict.source == "session" else ""  # the user answered "always" or "never"
        if self.mode == "deny" or (self.mode == "ask" and remembered == "deny"):
            return deny(call, reason=_NOT_AGAIN if begun else _REFUSED)
        if self.mode == "auto" or (remembered == "allow" and not begun):
            # A call that may have done its work is not repeated unless the user says so.
            return deny(call, reason=_NOT_AGAIN) if begun else approve(call)
        if self._terminal.in_is_tty:
            return self._ask(pending, tool, begun=begun)
        self.refused += 1
        self._terminal.say(
            f"dragoman: {to_line(call.name)} was not run: it needs your approval, and standard input is not a "
            f"terminal. Run it in a terminal, allow it in [permissions], or use --approve auto.",
            "yellow",
        )
        return deny(call, reason=_NOT_AGAIN if begun else _NOBODY)

    def _ask(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call = pending.call
        name = call.name if pending.within is None else f"{pending.within.name} > {call.name}"
        request = PermissionRequest(
            call=call,
            reason=pending.reason,
            rules=self._checker.suggest(call, tool),
            about="" if tool is None else tool.description.partition("\n")[0],
            title=f"{name} {'wants to run again' if begun else 'wants to run'}",
        )
        answer = ConsoleResponder(show=self._terminal.say, ask=self._read_answer).ask_permission(request)
        if answer is None:
            self._terminal.say("")
            return deny(call, reason=_REFUSED)
        if answer.remember is not None:
            self._checker.remember(structs.replace(answer.remember, action="allow" if answer.allowed else "deny"))
        if answer.allowed:
            return approve(call)
        return deny(call, reason=_NOT_AGAIN if begun and answer.reason == _REFUSED else answer.reason)

    def _read_answer(self, question: str) -> str:
        answer = self._terminal.ask(question)
        if answer is None:
            raise EOFError
        return answer


def _asks(call: ToolCall, tool: AnyTool, decision: object) -> bool:
    """Whether the tool itself requires approval, and no rule has given it."""
    needed = tool.options.requires_approval
    given = isinstance(decision, Deny) or (isinstance(decision, Allow) and decision.approved)
    return not given and bool(needed(call) if callable(needed) else needed)
