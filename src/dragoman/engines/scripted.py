"""An engine that says what it was told to: a test double for code that talks to models.

Owns: ScriptedEngine and AsyncScriptedEngine. Public, so that users' tests need no key, no network and no patching.
Must not know: providers' wire formats (the simulator speaks those).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from typing import Self, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import Conversation, Failed, Fold, Message, ReplyEvent, StopReason, ToolSpec, unfold
from dragoman.errors import DragomanError, ProviderError
from dragoman.providers import Loss, ModelOptions, Profile

from .reply import Reply


class ScriptedCall(Struct, frozen=True):
    """What the engine was asked, for assertions and for replies that depend on it."""

    conversation: Conversation
    tools: tuple[ToolSpec, ...]
    options: ModelOptions | None


ScriptedReply: TypeAlias = str | Message | DragomanError | Callable[[ScriptedCall], "str | Message | DragomanError"]
"""A text, a whole message, an error to raise, or a function of the call that gives one of these."""


class _Script:
    """What both colours share: the replies still to be given, and the calls that were made."""

    def __init__(
        self, replies: Iterable[ScriptedReply], *, name: str = "scripted:model", piece: int | None = None
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self.name: str = name
        provider, _, self._model = name.partition(":")
        self.profile: Profile = Profile(provider=provider, dialect="scripted")
        self.options: ModelOptions = ModelOptions()
        self._replies: Iterator[ScriptedReply] = iter(replies)
        self._piece: int | None = piece

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """A script loses nothing."""
        return ()

    def _next(self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None) -> Message:
        conversation.ensure_valid()
        call = ScriptedCall(conversation, tuple(tools), options)
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

    def _events(
        self, fold: Fold, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> Generator[ReplyEvent, None, None]:
        try:
            message = self._next(conversation, tools, options)
        except ProviderError as error:
            failed = Failed(type(error).__name__, error.message)
            fold.push(failed)
            yield failed
            raise
        for event in unfold(message, piece=self._piece):
            fold.push(event)
            yield event


class _ScriptedStream:
    def __init__(self, fold: Fold, events: Generator[ReplyEvent, None, None]) -> None:
        self._fold: Fold = fold
        self._events: Generator[ReplyEvent, None, None] = events

    @property
    def message(self) -> Message:
        return self._fold.message()

    @property
    def reply(self) -> Reply:
        return Reply(message=self.message)

    def __iter__(self) -> Iterator[ReplyEvent]:
        return self._events

    def close(self) -> None:
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    async def _async_events(self) -> AsyncGenerator[ReplyEvent, None]:
        for event in self._events:
            yield event

    def __aiter__(self) -> AsyncIterator[ReplyEvent]:
        return self._async_events()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()


class ScriptedEngine(_Script):
    """Answers from a script, one reply for each call; `calls` tells what it was asked."""

    def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        return conversation.plus(self._next(conversation, tools, options))

    def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        return Reply(message=self._next(conversation, tools, options))

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> _ScriptedStream:
        fold = Fold()
        return _ScriptedStream(fold, self._events(fold, conversation, tools, options))

    def close(self) -> None:
        """There is nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncScriptedEngine(_Script):
    """ScriptedEngine for a program on an event loop."""

    async def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        return conversation.plus(self._next(conversation, tools, options))

    async def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        return Reply(message=self._next(conversation, tools, options))

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> _ScriptedStream:
        fold = Fold()
        return _ScriptedStream(fold, self._events(fold, conversation, tools, options))

    async def aclose(self) -> None:
        """There is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
