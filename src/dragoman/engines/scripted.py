"""An engine that answers from a script: a public test double, so that users' tests need no key and no network."""

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
    """A call of the engine, for assertions and for replies that depend on it."""

    conversation: Conversation
    tools: tuple[ToolSpec, ...]
    options: ModelOptions | None


ScriptedReply: TypeAlias = str | Message | DragomanError | Callable[[ScriptedCall], "str | Message | DragomanError"]
"""A text, a whole message, an error to raise, or a function of the call that returns one of these."""


class _Script(BaseEngine):
    """What both engines share."""

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
        call = ScriptedCall(conversation, tuple(tools), options)

        async def answer() -> Message:
            return self._next(call)

        return MessageCall(answer, piece=self._piece)

    def _next(self, call: ScriptedCall) -> Message:
        call.conversation.ensure_valid()
        self.calls.append(call)
        reply = next(self._replies, None)
        if reply is None:
            message = f"The script has no reply left for call number {len(self.calls)}."
            raise ProviderError(message, hint="Add a reply to the script, or make fewer calls.", provider="scripted")
        if callable(reply):
            reply = reply(call)
        if isinstance(reply, DragomanError):
            raise reply
        if isinstance(reply, str):
            reply = Message.assistant(reply)
        reason = reply.stop_reason or (StopReason.TOOL_CALLS if reply.tool_calls else StopReason.END)
        provider, model = reply.provider or self.profile.provider, reply.model or self._model
        return msgspec.structs.replace(reply, provider=provider, model=model, stop_reason=reason)


class ScriptedEngine(_Script, Engine):
    """Answers from a script, one reply for each call; `calls` lists the calls."""


class AsyncScriptedEngine(_Script, AsyncEngine):
    """ScriptedEngine for a program on an event loop."""
