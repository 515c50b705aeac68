"""Engines: one job, a model's reply to a conversation.

Owns: Engine and AsyncEngine, the protocols that everything above speaks to; ToolFeatures, what an engine can do with
tools; HttpEngine and AsyncHttpEngine, models behind HTTP.
Must not know: loops, tools' code, stores. Tool calls in a reply are left as they are.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Protocol, Self

from msgspec import Struct

from dragoman._stepping import step
from dragoman.conversation import Conversation, Message, ReplyEvent, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import Loss, ModelOptions, Profile, ToolLimits
from dragoman.transport import Transport

from .call import AsyncReplyStream, ModelCall, ReplyCall, ReplyStream
from .connection import Connection
from .reply import Reply


class Stream(Protocol):
    """A reply while it arrives, to be used in a `with` block."""

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        ...

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        ...

    def __iter__(self) -> Iterator[ReplyEvent]: ...
    def close(self) -> None:
        """Stop and release the connection."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class AsyncStream(Protocol):
    """A reply while it arrives, to be used in an `async with` block."""

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        ...

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        ...

    def __aiter__(self) -> AsyncIterator[ReplyEvent]: ...
    async def aclose(self) -> None:
        """Stop and release the connection."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...


class _Described(Protocol):
    @property
    def name(self) -> str:
        """As in `provider:model`."""
        ...

    @property
    def profile(self) -> Profile:
        """What the model can do."""
        ...

    @property
    def options(self) -> ModelOptions:
        """What is asked of the model where a call does not say."""
        ...

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is sent."""
        ...


class Engine(_Described, Protocol):
    """A model, for a plain program."""

    def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        ...

    def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        ...

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Stream:
        """The model's reply as it arrives."""
        ...

    def close(self) -> None:
        """Let go of connections, or of whatever else it holds."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class AsyncEngine(_Described, Protocol):
    """A model, for a program on an event loop."""

    async def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        ...

    async def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        ...

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> AsyncStream:
        """The model's reply as it arrives."""
        ...

    async def aclose(self) -> None:
        """Let go of connections, or of whatever else it holds."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...


class ToolFeatures(Struct, frozen=True, kw_only=True):
    """What a model can do with tools."""

    supports_tools: bool
    supports_parallel_calls: bool
    supports_tool_choice: bool
    supports_strict: bool
    supports_streaming: bool
    supports_media_results: bool
    supported_choices: frozenset[str]
    limits: ToolLimits


def features_of(profile: Profile) -> ToolFeatures:
    """The summary of a profile."""
    return ToolFeatures(
        supports_tools=profile.tools,
        supports_parallel_calls=profile.tools and profile.parallel_tool_calls,
        supports_tool_choice=profile.tools and len(profile.tool_choices) > 1,
        supports_strict=profile.strict_tools,
        supports_streaming=True,
        supports_media_results=bool(profile.tool_result_media),
        supported_choices=profile.tool_choices if profile.tools else frozenset(),
        limits=profile.tool_limits,
    )


class _OverHttp:
    """What the engines of both colours have in common."""

    def __init__(
        self, connection: Connection, transport: Transport, sleep: Callable[[float], Awaitable[None]], *, blocking: bool
    ) -> None:
        if getattr(transport, "blocking", None) is (not blocking):
            kind, fitting = ("plain", "SocketTransport") if blocking else ("async", "AsyncioTransport")
            message = f"An engine for {kind} programs cannot use {type(transport).__name__}."
            raise ConfigurationError(message, hint=f"Use {fitting}, or the engine of the other colour.")
        self.connection: Connection = connection
        self.profile: Profile = connection.profile
        """What the model can do."""
        self._transport: Transport = transport
        self._sleep: Callable[[float], Awaitable[None]] = sleep

    @property
    def name(self) -> str:
        """As in `provider:model`."""
        return self.connection.name

    @property
    def options(self) -> ModelOptions:
        """What is asked of the model where a call does not say."""
        return self.connection.options

    @property
    def features(self) -> ToolFeatures:
        """What the model can do with tools."""
        return features_of(self.connection.profile)

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools in the provider's own form, as JSON data; nothing is sent."""
        return self.connection.prepared_tools(tools)

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is sent."""
        return self.connection.losses(conversation)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ModelCall:
        return self.connection.call(
            conversation, tools, options, stream=stream, transport=self._transport, sleep=self._sleep
        )


class PlainCalls:
    """The ways of asking an engine in a plain program, over one call."""

    def _call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        raise NotImplementedError

    def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus(self.reply(conversation, tools=tools, options=options).message)

    def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        return step(self._call(conversation, tools, options, stream=False).reply())

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> ReplyStream:
        """The model's reply as it arrives; use it in a `with` block."""
        return ReplyStream(self._call(conversation, tools, options, stream=True))

    def close(self) -> None:
        """Let go of connections, or of whatever else it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncCalls:
    """The ways of asking an engine on an event loop, over one call."""

    def _call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        raise NotImplementedError

    async def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus((await self.reply(conversation, tools=tools, options=options)).message)

    async def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        return await self._call(conversation, tools, options, stream=False).reply()

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> AsyncReplyStream:
        """The model's reply as it arrives; use it in an `async with` block."""
        return AsyncReplyStream(self._call(conversation, tools, options, stream=True))

    async def aclose(self) -> None:
        """Let go of connections, or of whatever else it holds."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


class HttpEngine(_OverHttp, PlainCalls):
    """A model behind HTTP, for a plain program. Safe to share between threads."""

    def __init__(
        self, connection: Connection, transport: Transport, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        async def blocking_sleep(seconds: float) -> None:
            sleep(seconds)

        super().__init__(connection, transport, blocking_sleep, blocking=True)

    def close(self) -> None:
        """Close the connections."""
        step(self._transport.aclose())


async def _sleep_on_loop(seconds: float) -> None:
    import asyncio  # which plain programs do not load

    await asyncio.sleep(seconds)


class AsyncHttpEngine(_OverHttp, AsyncCalls):
    """A model behind HTTP, for a program on an event loop. Safe to share between tasks."""

    def __init__(
        self,
        connection: Connection,
        transport: Transport,
        *,
        sleep: Callable[[float], Awaitable[None]] = _sleep_on_loop,
    ) -> None:
        super().__init__(connection, transport, sleep, blocking=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
