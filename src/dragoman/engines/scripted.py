"""An engine that says what it was told to: a test double for code that talks to models.

Owns: ScriptedEngine and AsyncScriptedEngine. Public, so that users' tests need no key, no network and no patching.
Must not know: providers' wire formats (the simulator speaks those).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import Conversation, Message, StopReason, ToolSpec
from dragoman.errors import DragomanError, ProviderError
from dragoman.providers import ModelOptions, Profile

from .base import AsyncEngine, BaseEngine, Engine, MessageCall


class ScriptedCall(Struct, frozen=True):
    """What the engine was asked, for assertions and for replies that depend on it."""

    conversation: Conversation
    tools: tuple[ToolSpec, ...]
    options: ModelOptions | None


ScriptedReply: TypeAlias = str | Message | DragomanError | Callable[[ScriptedCall], "str | Message | DragomanError"]
"""A text, a whole message, an error to raise, or a function of the call that gives one of these."""


class _Script(BaseEngine):
    """What both colours share: the replies still to be given, and the calls that were made."""

    def __init__(
        self, replies: Iterable[ScriptedReply], *, name: str = "scripted:model", piece: int | None = None
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self.name: str = name
        provider, _, self._model = name.partition(":")
        self.profile: Profile = Profile(provider=provider, dialect="scripted")
        self._replies: Iterator[ScriptedReply] = iter(replies)
        self._piece: int | None = piece

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> MessageCall:
        """A call that is answered by the next reply of the script."""
        asked = ScriptedCall(conversation, tuple(tools), options)

        async def answer() -> Message:
            return self._next(asked)

        return MessageCall(answer, piece=self._piece)

    def _next(self, call: ScriptedCall) -> Message:
        call.conversation.ensure_valid()
        self.calls.append(call)
        said = next(self._replies, None)
        if said is None:
            message = f"The script has no reply left for call number {len(self.calls)}."
            raise ProviderError(message, hint="Add a reply to the script, or make fewer calls.", provider="scripted")
        if callable(said):
            said = said(call)
        if isinstance(said, DragomanError):
            raise said
        if isinstance(said, str):
            said = Message.assistant(said)
        ended = said.stop_reason or (StopReason.TOOL_CALLS if said.tool_calls else StopReason.END)
        return msgspec.structs.replace(
            said, provider=said.provider or self.profile.provider, model=said.model or self._model, stop_reason=ended
        )


class ScriptedEngine(_Script, Engine):
    """Answers from a script, one reply for each call; `calls` tells what it was asked."""


class AsyncScriptedEngine(_Script, AsyncEngine):
    """ScriptedEngine for a program on an event loop."""
