"""A model behind HTTP, for a program on an event loop.

Owns: AsyncHttpEngine, the twin of HttpEngine. It imports asyncio, so plain programs do not import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from dragoman.conversation import Conversation, ToolSpec
from dragoman.providers.options import ModelOptions
from dragoman.transport.protocol import AsyncTransport

from .connection import Connection
from .engine import OverHttp
from .on_loop import AsyncReplyStream, acarry_out, adrive
from .reply import Reply

__all__ = ["AsyncHttpEngine"]


class AsyncHttpEngine(OverHttp):
    """A model behind HTTP, on an event loop. Safe to share between tasks."""

    def __init__(
        self,
        connection: Connection,
        transport: AsyncTransport,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(connection)
        self._transport: AsyncTransport = transport
        self._sleep: Callable[[float], Awaitable[None]] = sleep

    async def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus((await self.reply(conversation, tools=tools, options=options)).message)

    async def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        call = self.connection.call(conversation, tools, options, stream=False)
        await acarry_out(call, self._transport, self._sleep)
        return call.reply

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> AsyncReplyStream:
        """The model's reply as it arrives; use it in an `async with` block."""
        call = self.connection.call(conversation, tools, options, stream=True)
        return AsyncReplyStream(call, adrive(call, self._transport, self._sleep))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
