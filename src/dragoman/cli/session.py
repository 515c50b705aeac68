"""From arguments to a client: model, tools, permissions and store put together.

Owns: Session, what a question and a chat are carried out with.
Must not know: how anything is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from dragoman.chat.client import ChatClient
from dragoman.chat.config import LoadedConfig
from dragoman.chat.core import ChatOptions
from dragoman.chat.new import new
from dragoman.conversation import Conversation
from dragoman.errors import ConfigurationError, StoreError
from dragoman.stores.protocol import ConversationStore
from dragoman.stores.summary import SnapshotSummary
from dragoman.toolkit.permissions import PermissionChecker
from dragoman.tools.registry import ToolRegistry

from .approvals import Approver
from .arguments import UsageError
from .arguments.talking import Talking
from .conversations import find, latest, open_store, rewrite
from .local_model import fetch, is_local
from .model_choice import choose, load
from .prompts import clean
from .settings import cli_settings, mcp_servers, policy, skill_settings
from .terminal import Terminal
from .tool_choice import ToolChoice, ready_tools, skill_store

__all__ = ["Session"]


class Session:
    """Everything that a talk needs. Use it in a `with` block."""

    def __init__(self, arguments: Talking, terminal: Terminal) -> None:
        self.arguments: Talking = arguments
        self.terminal: Terminal = terminal
        self._stack: ExitStack = ExitStack()
        self._environ: Mapping[str, str] = os.environ
        self._directory: Path = _here()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        arguments, terminal = self.arguments, self.terminal
        terminal.quiet = arguments.quiet
        first = load(arguments, self._environ)
        settings = cli_settings(first)
        self.store: ConversationStore | None = self._open_store(wanted=settings.log and not arguments.no_log)
        continued = self._continued()
        model = None if continued is None else f"{continued.provider}:{continued.model}"
        self.loaded: LoadedConfig
        self.loaded, note = choose(arguments, self._environ, model)
        if note:
            terminal.note(f"dragoman: {note}", "yellow")
        self.markdown: bool = settings.markdown
        self._skills = skill_store(skill_settings(self.loaded), self._directory)
        self._choice = ToolChoice(
            ready_tools(self._directory, terminal, self._skills),
            mcp_servers(self.loaded),
            stack=self._stack,
            environ=self._environ,
            directory=self._directory,
        )
        checker = PermissionChecker(policy(self.loaded), workspace=self._directory, door="cli")
        self.approver: Approver = Approver(arguments.approve or settings.approve, terminal, checker)
        tools = self.tools(arguments.tools or settings.tools)
        if is_local(self.loaded.config.model_name):
            fetch(self.loaded.config.model_name, terminal)  # last: what is wrong in the arguments costs no download
        self.client: ChatClient = self._client(tools)
        if continued is not None:
            self.take_up(continued)

    # --- tools ---

    def tools(self, names: list[str] | tuple[str, ...]) -> ToolRegistry:
        """The tools of these names."""
        return self._choice.tools(names)

    # --- clients ---

    def _client(self, tools: ToolRegistry, system: str | None = None) -> ChatClient:
        given: ChatOptions = {"permission": self.approver.check}
        said = self._system(tools) if system is None else system
        if said:
            given["system"] = said
        return new(self.loaded.config, tools, store=self.store, **given)

    def _system(self, tools: ToolRegistry) -> str:
        from dragoman.toolkit.skills import skills_prompt

        said = clean(self.loaded.config.system_prompt)
        listed = skills_prompt(self._skills) if "Skill" in tools else ""
        return "\n\n".join([part for part in (said, listed) if part])

    def begin_anew(self, system: str | None = None) -> None:
        """A new conversation with the same model and tools, under another system prompt if one is given."""
        tools = self.client.tools.tools.clone()
        old, self.client = self.client, self._client(tools, system)
        old.close()

    def rewrite(self, change: Callable[[Conversation], Conversation]) -> None:
        """Change what was said; where nothing is left of it, begin anew."""
        changed = change(self.client.conversation)
        if changed.messages:
            rewrite(self.client, self.store, change)
        else:
            self.begin_anew(changed.system or "")

    def fork(self) -> None:
        """Go on in a conversation of its own that begins like this one."""
        old, self.client = self.client, self.client.fork()
        old.close()

    def take_up(self, summary: SnapshotSummary) -> None:
        """Go on with a conversation that was kept."""
        losses = self.client.restore(summary.root)
        for loss in losses:
            self.terminal.note(f"dragoman: {loss}", "yellow")
        if self.arguments.system is not None:
            system = clean(self.arguments.system)
            self.rewrite(lambda conversation: conversation.with_system(system or None))

    def use_model(self, name: str) -> tuple[object, ...]:
        """Speak to another model from now on; what it will not get of the history is returned."""
        arguments = Talking()
        arguments.model, arguments.profile = name, self.arguments.profile
        loaded = load(arguments, self._environ)
        if is_local(loaded.config.model_name):
            fetch(loaded.config.model_name, self.terminal)
        losses = self.client.switch(loaded.config.model_name, **loaded.config.for_engine(self._environ))
        self.loaded = loaded
        return losses

    # --- what was kept ---

    def _open_store(self, *, wanted: bool) -> ConversationStore | None:
        asked = self.arguments.go_on or self.arguments.cid is not None
        if not wanted and not asked:
            return None
        try:
            store = open_store(self._environ)
        except (StoreError, ConfigurationError) as error:
            if asked:
                raise
            self.terminal.say(f"dragoman: this conversation is not kept: {error.message}", "yellow")
            return None
        self._stack.callback(store.close)
        return store

    def _continued(self) -> SnapshotSummary | None:
        if self.store is None:
            return None
        if self.arguments.cid is not None:
            return find(self.store, self.arguments.cid)
        return latest(self.store) if self.arguments.go_on else None

    # --- the end ---

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


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("The working directory is no longer there.", hint="Change to another one.") from None
