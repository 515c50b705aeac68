"""Driving a model call on an event loop.

Owns: doing with an async transport what a call asks for, and the stream that a caller iterates.
Must not know: what is asked for and why. The twin of plain.py, and no longer than it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Self

from dragoman.conversation import Message, ReplyEvent
from dragoman.errors import ProviderError
from dragoman.transport.protocol import AsyncResponse, AsyncTransport

from .model_call import Emit, ModelCall, Open, ReadPiece, Sleep
from .reply import Reply

__all__ = ["AsyncReplyStream", "acarry_out", "adrive"]


async def acarry_out(call: ModelCall, transport: AsyncTransport, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Carry out a call for a whole reply."""
    call.begin()
    while True:
        try:
            response = await transport.open(call.request)
            call.opened(response)
            call.take_whole(await response.read())  # which releases the connection, however it ends
        except ProviderError as error:
            pause = call.failed(error)
            if pause is None:
                raise
        else:
            return
        await sleep(pause)
        call.again()


async def adrive(
    call: ModelCall, transport: AsyncTransport, sleep: Callable[[float], Awaitable[None]]
) -> AsyncGenerator[ReplyEvent, None]:
    """Carry out a streamed call, and give its events as they come. Closing the generator closes the connection."""
    steps = call.steps()
    response: AsyncResponse | None = None
    answer: object = None
    failure: ProviderError | None = None
    try:
        while True:
            try:
                effect = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            answer = failure = None
            if isinstance(effect, Emit):
                for event in effect.events:
                    yield event
                continue
            try:
                if isinstance(effect, Open):
                    answer = response = await transport.open(effect.request)
                elif isinstance(effect, Sleep):
                    response = await _closed(response)
                    await sleep(effect.seconds)
                elif response is not None:
                    answer = await (anext(response, b"") if isinstance(effect, ReadPiece) else response.read())
            except ProviderError as error:
                failure = error
    finally:
        steps.close()
        await _closed(response)


async def _closed(response: AsyncResponse | None) -> None:
    if response is not None:
        await response.aclose()


class AsyncReplyStream:
    """A reply while it arrives: iterate it inside an `async with` block, which closes the connection in any case."""

    def __init__(self, call: ModelCall, events: AsyncGenerator[ReplyEvent, None]) -> None:
        self._call: ModelCall = call
        self._events: AsyncGenerator[ReplyEvent, None] = events

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return self._call.reply

    def __aiter__(self) -> AsyncIterator[ReplyEvent]:
        return self._events

    async def aclose(self) -> None:
        """Stop the reply and release the connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
