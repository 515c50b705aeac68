"""Engines: one job, a model's reply to a conversation.

Owns: Engine and AsyncEngine, the protocols that everything above speaks to; HttpEngine, which implements the first over
a transport (its twin is in async_engine.py).
Must not know: loops, tools' code, stores. Tool calls in a reply are left as they are.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol, Self

from dragoman.conversation import Conversation, Message, ReplyEvent, ToolSpec
from dragoman.providers.codec import Loss
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile
from dragoman.transport.protocol import Transport

from .connection import Connection
from .features import ToolFeatures, features_of
from .plain import ReplyStream, carry_out, drive
from .reply import Reply

__all__ = ["AsyncEngine", "AsyncStream", "Engine", "HttpEngine", "OverHttp", "Stream"]


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


class OverHttp:
    """What the two engines have in common."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection = connection

    @property
    def name(self) -> str:
        """As in `provider:model`."""
        return self.connection.name

    @property
    def profile(self) -> Profile:
        """What the model can do."""
        return self.connection.profile

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


class HttpEngine(OverHttp):
    """A model behind HTTP, for a plain program. Safe to share between threads."""

    def __init__(
        self, connection: Connection, transport: Transport, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(connection)
        self._transport: Transport = transport
        self._sleep: Callable[[float], None] = sleep

    def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus(self.reply(conversation, tools=tools, options=options).message)

    def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        call = self.connection.call(conversation, tools, options, stream=False)
        carry_out(call, self._transport, self._sleep)
        return call.reply

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> ReplyStream:
        """The model's reply as it arrives; use it in a `with` block."""
        call = self.connection.call(conversation, tools, options, stream=True)
        return ReplyStream(call, drive(call, self._transport, self._sleep))

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
