"""What a server may send: no more than that comes in.

Owns: the stream between a transport and the SDK's session, on which garbage and floods end.
Must not know: where the messages come from, and what they mean beyond being notifications or not.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.client._transport import Transport, TransportStreams
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from dragoman.mcp.settings import ClientLimits

__all__ = ["Inlet"]


class _Guarded:
    """A stream of messages with notifications rationed and garbage counted."""

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        limits: ClientLimits,
        ended: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._inner: ReadStream[SessionMessage | Exception] = inner
        self._limits: ClientLimits = limits
        self._ended: Callable[[str], None] = ended
        self._clock: Callable[[], float] = clock
        self._tokens: float = float(limits.notification_burst)
        self._filled: float = clock()
        self._garbage: int = 0
        self._dropped: int = 0

    @property
    def last_context(self) -> Any:
        """The sender's context variables, which the SDK looks for."""
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            while True:
                item = await self._inner.__anext__()
                if not self._drops(item):
                    return item
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.EndOfStream):
            self._ended("it closed the connection")
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _drops(self, item: SessionMessage | Exception) -> bool:
        """Whether the item is not let in; ends the stream when that has happened too often."""
        if isinstance(item, Exception):
            self._garbage += 1
            if self._garbage > self._limits.max_garbage:
                self._give_up(f"it sent more than {self._limits.max_garbage} messages that are not MCP")
            return True  # the session could only log it
        # Requests of the server's own count as well: each would be a task of ours until it has read our answer.
        if not isinstance(item.message, JSONRPCNotification | JSONRPCRequest) or self._may_pass():
            return False
        self._dropped += 1
        if self._dropped > self._limits.max_dropped:
            self._give_up("it sent notifications or requests without end")
        return True

    def _may_pass(self) -> bool:
        now = self._clock()
        gained = (now - self._filled) * self._limits.notifications_per_second
        self._tokens = min(float(self._limits.notification_burst), self._tokens + gained)
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _give_up(self, why: str) -> None:
        self._ended(why)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


class Inlet:
    """A transport around another one. `ended` is told, once or more often, why no more will come."""

    def __init__(
        self,
        inner: Transport,
        limits: ClientLimits,
        ended: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._inner: Transport = inner
        self._limits: ClientLimits = limits
        self._ended: Callable[[str], None] = ended
        self._clock: Callable[[], float] = clock

    async def __aenter__(self) -> TransportStreams:
        incoming, outgoing = await self._inner.__aenter__()
        return _Guarded(incoming, self._limits, self._ended, self._clock), outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)
