"""From arguments to a client: model, tools, permissions and store put together, and turns with their questions.

A question about a call is asked between two runs of the loop, not inside one: the conversation is in the store by then,
so that a program that is killed at the question asks it again when it is continued.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Final

from msgspec import Struct, structs

from dragoman.chat import ChatClient, ChatOptions, LoadedConfig, Prompt, new
from dragoman.conversation import Conversation, ToolCall, source_lines
from dragoman.errors import ConfigurationError, StepLimitError, StoreError
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
from .history import find_conversation, open_store
from .instructions import read_instructions
from .output import TextView, View
from .settings import Settings, clean_models, fetch_models, load_with, read_settings, settle_model
from .terminal import Terminal, to_line
from .tools import ToolChoice


class Session(ExitStack):
    """Everything that a talk needs. What it opens is closed when its `with` block ends."""

    def __init__(self, arguments: Namespace, terminal: Terminal, *, reads_instructions: bool = False) -> None:
        super().__init__()
        self.arguments: Namespace = arguments
        self.terminal: Terminal = terminal
        terminal.quiet = arguments.quiet
        self._continues: bool = arguments.go_on or arguments.cid is not None
        self._reads_instructions: bool = reads_instructions
        self._instructions: str = ""
        """What the project says to models, if the user agreed."""
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self.enter_context(self.terminal.reserve_stdout())
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
        if self._reads_instructions and self.settings.cli.instructions and not self._continues:
            self._instructions = read_instructions(self.settings.directory, self.loaded, self.terminal)
        # Last: what is wrong in the arguments costs no download.
        fetch_models(self.loaded.config.model_names, self.terminal)
        self.client: ChatClient = self._make_client(tools)
        self.callback(lambda: self.client.close())  # noqa: PLW0108 -- whichever it is by then
        if continued is not None:
            self.client.restore(continued.root)  # what the model does not get of it is logged when it is asked
            if self.arguments.system is not None:
                system = clean(self.arguments.system)
                self.rewrite(lambda conversation: conversation.with_system(system or None))

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

    def _make_client(self, tools: ToolRegistry, system: str | None = None) -> ChatClient:
        given: ChatOptions = {"permission": self.approver.check}
        if system is None:
            listed = skills_prompt(self.settings.skills) if "Skill" in tools else ""
            parts = (clean(self.loaded.config.system_prompt), self._instructions, listed)
            system = "\n\n".join([part for part in parts if part])
        if system:
            given["system"] = system
        return new(self.loaded.config, tools, store=self.store, **given)

    def begin_anew(self, system: str | None = None) -> None:
        """A new conversation with the same model and tools, under another system prompt if one is given."""
        old, self.client = self.client, self._make_client(self.client.tools.tools.clone(), system)
        old.close()

    def rewrite(self, change: Callable[[Conversation], Conversation]) -> None:
        """Change what was said, such as the system prompt or the last turn; what was before stays in the chain."""
        if self.client.uncertain:
            message = "A tool call was under way when the program was stopped, and waits for your answer."
            raise ConfigurationError(message, hint="Continue first, and answer; then change the conversation.")
        changed = change(self.client.conversation)
        if not changed.messages:
            self.begin_anew(changed.system or "")
        elif changed != self.client.conversation:
            following = self.client.save().next(changed)
            if self.store is not None:
                self.store.save(following)
            self.client.restore(following)

    def fork(self) -> None:
        """Go on in a conversation of its own that begins like this one."""
        old, self.client = self.client, self.client.fork()
        old.close()

    def use_model(self, name: str) -> tuple[object, ...]:
        """Speak to another model from now on; what it will not get of the history is returned."""
        loaded = self.loaded.change(model=clean_models(name))
        fetch_models(loaded.config.model_names, self.terminal)
        losses = self.client.switch(loaded.config.model_names, **loaded.config.for_engine())
        self.loaded = loaded
        return losses

    # --- turns ---

    def make_view(self) -> View:
        """How a turn is shown: rendered on a terminal, as plain text elsewhere or where the user wants it so."""
        terminal, model = self.terminal, self.client.model
        waiting = f"{'loading' if model.startswith('local:') else 'waiting for'} {model}"
        is_rich = terminal.out_is_tty and terminal.err_is_tty and terminal.environ.get("TERM") != "dumb"
        if is_rich and self.settings.cli.markdown and not terminal.quiet and find_spec("rich") is not None:
            from .chat_screen import Screen

            return Screen(terminal, waiting)
        return TextView(terminal, waiting)

    def can_continue(self) -> bool:
        """Whether the model can go on without a new message."""
        last = self.client.conversation.last
        return last is not None and (last.role != "assistant" or bool(self.client.pending))

    def take_turn(self, prompt: Prompt | None, view: View) -> None:
        """Let the model answer, asking about calls in between. Without a prompt it goes on from where it stands.

        A question is asked between two runs of the loop; the limit of steps holds across all of them.
        """
        client, steps = self.client, 0
        most = client.tools.config.max_iterations
        approvals: list[Approval] = []
        if prompt is None and client.uncertain:
            # Who speaks instead has answered: the calls are not run. The loop asks about calls that had not begun.
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
                    return view.cite(source_lines(stream.result.citations))
                steps += stream.result.spent.steps
                if steps >= most:
                    message = f"max iterations ({most}) reached"
                    raise StepLimitError(message, conversation=client.conversation, limit="steps")
                approvals = self.approver.answer(stream.result.pending, client.tools.tools, client.uncertain)
                prompt = None
        finally:
            view.end()

    # --- what was kept ---

    @property
    def is_kept(self) -> bool:
        """Whether there is something that can be continued later."""
        return self.store is not None and bool(self.client.history)

    def drop_empty(self) -> None:
        """Take a conversation in which nothing was said, because the first turn failed, out of the store."""
        if self.store is not None and self.client.id is not None and not self.client.history:
            self.store.delete(self.client.id)


# --- asking a person about tool calls ---------------------------------------------------------------------------------

_REFUSED: Final = "the user refused"
_NOBODY: Final = "there was nobody to approve it"
_NOT_AGAIN: Final = (
    "it had begun when the program was stopped, and nobody knows whether it did its work; find out before you try again"
)


class Approver(Struct):
    """Answers about calls that need approval: by asking, or as the user has said once for all."""

    mode: Approve
    _terminal: Terminal
    _checker: PermissionChecker
    refused: int = 0
    """How many calls were refused because there was nobody to ask."""

    def check(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        """What the rules say, for the executor; in mode `auto`, yes to what they would ask."""
        decision = self._checker(call, tool, context)
        return Allow() if isinstance(decision, Ask) and self.mode == "auto" else decision

    def decide(self, call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        """The same where nobody calls `answer`, as on the page; in mode `deny`, no to what would be asked."""
        decision = self.check(call, tool, context)
        if self.mode == "deny" and (isinstance(decision, Ask) or _asks(call, tool, decision)):
            return Deny(_REFUSED)
        return decision

    def answer(
        self, pending: Iterable[PendingApproval], tools: ToolSet, uncertain: Collection[PendingApproval] = ()
    ) -> list[Approval]:
        """An answer about each call that waits. Those that are `uncertain` may have done their work already."""
        begun = {each.call.id for each in uncertain}
        found = [(each, each.tool_among(tools)) for each in pending]
        return [self._answer(each, tool, begun=each.call.id in begun) for each, tool in found]

    def _answer(self, pending: PendingApproval, tool: AnyTool | None, *, begun: bool) -> Approval:
        call = pending.call
        if self.mode == "deny":
            return deny(call, reason=_NOT_AGAIN if begun else _REFUSED)
        if self.mode == "auto":
            # What may have done its work already is not done twice without a person's word.
            return deny(call, reason=_NOT_AGAIN) if begun else approve(call)
        verdict = self._checker.judge(call, tool)
        if not begun and (verdict.action, verdict.source) == ("allow", "session"):
            return approve(call)  # "always" was said; a tool that asks of its own accord does not look at the rules
        if (verdict.action, verdict.source) == ("deny", "session"):  # "never" was, perhaps just now
            return deny(call, reason=_NOT_AGAIN if begun else _REFUSED)
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
        said = self._terminal.ask(question)
        if said is None:
            raise EOFError
        return said


def _asks(call: ToolCall, tool: AnyTool, decision: object) -> bool:
    """Whether the tool wants a person's word of its own accord, and a rule has not given it."""
    needed = tool.options.requires_approval
    given = isinstance(decision, Deny) or (isinstance(decision, Allow) and decision.approved)
    return not given and bool(needed(call) if callable(needed) else needed)
