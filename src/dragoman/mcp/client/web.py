"""A server behind an address.

Owns: the HTTP client it is asked with, and how much of an answer is read.
Must not know: what is said to it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from dragoman.engines.keys import Secret
from dragoman.mcp.settings import HttpServer, ServerOptions

__all__ = ["web"]


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
async def web(server: HttpServer, options: ServerOptions) -> AsyncGenerator[TransportStreams, None]:
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
        yield streams
