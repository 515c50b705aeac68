"""The way to a server behind an address, and what any server may send: no more than that comes in.

Must not know: what is said.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeAlias, cast

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from dragoman.engines import Secret

from .settings import ClientLimits, HttpServer, ServerOptions

Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
"""What comes from a server, and what goes to it."""


class _Capped(httpx2.AsyncByteStream):
    """A body that is read to a limit and no further."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner: httpx2.AsyncByteStream = inner
        self._limit: int = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                message = f"the answer is larger than the {self._limit} bytes that are allowed"
                raise httpx2.StreamError(message)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def web(server: HttpServer, options: ServerOptions) -> AsyncGenerator[Streams, None]:
    """The streams of messages to and from the address."""
    limit = options.limits.max_message_bytes

    async def cap(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # A few bytes can stand for as many as one likes, and none of this was asked for.
            message = "the answer is compressed, although that was not asked for"
            raise httpx2.StreamError(message)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Capped(cast("httpx2.AsyncByteStream", response.stream), limit)

    headers = {key: value.reveal() if isinstance(value, Secret) else value for key, value in server.headers.items()}
    # No limit for reading: an idle stream of events is no fault, and each request has its own deadline.
    timeout = httpx2.Timeout(options.connect_timeout, read=None)
    async with (
        httpx2.AsyncClient(
            headers={"accept-encoding": "identity", **headers}, timeout=timeout, event_hooks={"response": [cap]}
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield cast("Streams", streams)


# --- what any server may send ----------------------------------------------------------------------------------------


class UnreadableMessageError(Exception):
    """A message of which not even the id is known: somebody may wait for it without end."""


@asynccontextmanager
async def guard(
    transport: AbstractAsyncContextManager[Streams], limits: ClientLimits, ended: Callable[[str], None]
) -> AsyncGenerator[Streams, None]:
    """A transport on which garbage and floods end. `ended` is told why no more will come."""
    async with transport as (incoming, outgoing), anyio.create_task_group() as tasks:
        into, guarded = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        with into, guarded:
            tasks.start_soon(_pump, incoming, into, _Guard(limits), ended)
            try:
                yield guarded, outgoing
            finally:
                tasks.cancel_scope.cancel()


async def _pump(
    incoming: MemoryObjectReceiveStream[SessionMessage | Exception],
    into: MemoryObjectSendStream[SessionMessage | Exception],
    guarding: _Guard,
    ended: Callable[[str], None],
) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
        async for item in incoming:
            if guarding.admits(item):
                await into.send(item)
            if guarding.problem:
                break
    ended(guarding.problem or "it closed the connection")
    into.close()


_MAX_GARBAGE = 1_000
"""How many messages that are not MCP are passed over before the connection is given up."""
_BURST = 1_000
"""How many notifications and requests are taken at once …"""
_PER_SECOND = 100
"""… and how many in each second from then on. What comes faster is dropped."""
_MAX_DROPPED = 10_000
"""How many are dropped before the connection is given up."""


class _Guard:
    """Counts garbage and rations notifications."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits: ClientLimits = limits
        self._left: float = _BURST
        self._looked: float = anyio.current_time()
        self._garbage: int = 0
        self._dropped: int = 0
        self.problem: str = ""
        """Why the server is no longer listened to."""

    def admits(self, item: SessionMessage | Exception) -> bool:
        """Whether the item is let in."""
        if isinstance(item, UnreadableMessageError):
            most = self._limits.max_message_bytes
            self.problem = f"it sent a message that cannot be read, or has more than {most} bytes"
            return False
        if isinstance(item, Exception):
            self._garbage += 1
            if self._garbage > _MAX_GARBAGE:
                self.problem = f"it sent more than {_MAX_GARBAGE} messages that are not MCP"
            return False  # the session could only log it
        # Requests of the server's own count as well: each would be a task of ours until it has read our answer.
        if not isinstance(item.message, JSONRPCNotification | JSONRPCRequest) or self._takes_another():
            return True
        self._dropped += 1
        if self._dropped > _MAX_DROPPED:
            self.problem = "it sent notifications or requests without end"
        return False

    def _takes_another(self) -> bool:
        now = anyio.current_time()
        self._left = min(_BURST, self._left + (now - self._looked) * _PER_SECOND)
        self._looked = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
