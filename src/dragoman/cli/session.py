"""From arguments to a client: model, tools, permissions and store put together, and turns with their questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from dragoman.chat import ChatClient, ChatOptions, LoadedConfig, Prompt, new
from dragoman.conversation import Conversation
from dragoman.errors import ConfigurationError, StepLimitError, StoreError
from dragoman.stores import ConversationStore, SnapshotSummary
from dragoman.toolkit import PermissionChecker, skills_prompt
from dragoman.tools import Approval, ToolRegistry

from .approvals import Approver
from .arguments import Talking
from .conversations import find_conversation, find_latest, open_store
from .output import View
from .prompts import clean
from .settings import (
    CliSettings,
    clean_model,
    fetch_model,
    find_directory,
    load_with,
    read_cli_settings,
    read_policy,
    settle_model,
)
from .terminal import Terminal
from .tool_choice import ToolChoice


class Session:
    """Everything that a talk needs. Use it in a `with` block."""

    def __init__(self, arguments: Talking, terminal: Terminal) -> None:
        self.arguments: Talking = arguments
        self.terminal: Terminal = terminal
        terminal.quiet = arguments.quiet
        self._stack: ExitStack = ExitStack()
        directory = find_directory()
        self.loaded: LoadedConfig = load_with(arguments)
        self.settings: CliSettings = read_cli_settings(self.loaded)
        try:
            self.store: ConversationStore | None = self._open_store()
            self._begin(directory)
        except BaseException:
            self.close()
            raise

    def _begin(self, directory: Path) -> None:
        continued = self._find_continued()
        if continued is not None and self.arguments.model is None:
            self.loaded = self.loaded.change(model=f"{continued.provider}:{continued.model}")
        self.loaded = settle_model(self.loaded, self.terminal)
        self._choice: ToolChoice = ToolChoice(self.loaded, directory, self.terminal, self._stack)
        checker = PermissionChecker(read_policy(self.loaded), workspace=directory, door="cli")
        self.approver: Approver = Approver(self.arguments.approve or self.settings.approve, self.terminal, checker)
        tools = self.build_tools(self.arguments.tools or self.settings.tools)
        # Last: what is wrong in the arguments costs no download.
        fetch_model(self.loaded.config.model_name, self.terminal)
        self.client: ChatClient = self._make_client(tools)
        if continued is not None:
            self._take_up(continued)

    def build_tools(self, names: Sequence[str]) -> ToolRegistry:
        """The tools of these names."""
        return self._choice.build(names)

    # --- clients ---

    def _make_client(self, tools: ToolRegistry, system: str | None = None) -> ChatClient:
        given: ChatOptions = {"permission": self.approver.check}
        if system is None:
            listed = skills_prompt(self._choice.skills) if "Skill" in tools else ""
            system = "\n\n".join([part for part in (clean(self.loaded.config.system_prompt), listed) if part])
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

    def _take_up(self, summary: SnapshotSummary) -> None:
        """Go on with a conversation that was kept."""
        for loss in self.client.restore(summary.root):
            self.terminal.note(f"dragoman: {loss}", "yellow")
        if self.arguments.system is not None:
            system = clean(self.arguments.system)
            self.rewrite(lambda conversation: conversation.with_system(system or None))

    def use_model(self, name: str) -> tuple[object, ...]:
        """Speak to another model from now on; what it will not get of the history is returned."""
        loaded = self.loaded.change(model=clean_model(name))
        fetch_model(loaded.config.model_name, self.terminal)
        losses = self.client.switch(loaded.config.model_name, **loaded.config.for_engine())
        self.loaded = loaded
        return losses

    # --- turns ---

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
                    return
                steps += stream.result.spent.steps
                if steps >= most:
                    message = f"max iterations ({most}) reached"
                    raise StepLimitError(message, conversation=client.conversation, limit="steps")
                approvals = self.approver.answer(stream.result.pending, client.tools.tools, client.uncertain)
                prompt = None
        finally:
            view.end()

    # --- what was kept ---

    def _open_store(self) -> ConversationStore | None:
        needed = self.arguments.go_on or self.arguments.cid is not None
        if not needed and (self.arguments.no_log or not self.settings.log):
            return None
        try:
            store = open_store()
        except (StoreError, ConfigurationError) as error:
            if needed:
                raise
            self.terminal.say(f"dragoman: this conversation is not kept: {error.message}", "yellow")
            return None
        self._stack.callback(store.close)
        return store

    def _find_continued(self) -> SnapshotSummary | None:
        if self.store is None:
            return None
        if self.arguments.cid is not None:
            return find_conversation(self.store, self.arguments.cid)
        return find_latest(self.store) if self.arguments.go_on else None

    @property
    def is_kept(self) -> bool:
        """Whether there is something that can be continued later."""
        return self.store is not None and bool(self.client.history)

    def drop_empty(self) -> None:
        """Take a conversation in which nothing was said, because the first turn failed, out of the store."""
        if self.store is not None and self.client.id is not None and not self.client.history:
            self.store.delete(self.client.id)

    def close(self) -> None:
        """Close the client, the MCP servers and the store."""
        client: ChatClient | None = getattr(self, "client", None)
        try:
            if client is not None:
                client.close()
        finally:
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
