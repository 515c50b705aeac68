"""A server at a URL: what is sent by the SDK's transport, and what is read of each response.

Must not know: what the messages mean.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import httpx2
from mcp.client.streamable_http import streamable_http_client

from .authorization import CheckedAuth
from .reading import Answer, Events, Parcels, Start
from .settings import HttpServer, reveal
from .transports import Streams

_EVENTS = "text/event-stream"


@asynccontextmanager
async def web(server: HttpServer, on_status: Callable[[int], None], parcels: Parcels) -> AsyncGenerator[Streams, None]:
    """Yield the streams to and from the URL. `on_status` is called with the status of every response."""

    async def bound(response: httpx2.Response) -> None:
        on_status(response.status_code)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # It was not requested, and a few compressed bytes can stand for any number.
            message = "the response is compressed, although that was not requested"
            raise httpx2.StreamError(message)
        response.stream = _bounded(response, parcels, reads_all=reads_all)

    headers = {"accept-encoding": "identity", **reveal(server.headers)}
    # No read timeout: an idle event stream is normal, and each request has its own deadline.
    timeout = httpx2.Timeout(server.options.connect_timeout, read=None)
    given = server.auth
    auth = None if given is None else CheckedAuth(given, server.url)
    # Then every response is read to its end before the SDK gets it.
    reads_all = given is not None and given.requires_response_body and _has_default_flow(given)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [bound]}, auth=auth) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=server.options.max_message_bytes
        ) as streams,
    ):
        yield cast("Streams", streams)


def _has_default_flow(auth: httpx2.Auth) -> bool:
    return type(auth).async_auth_flow is httpx2.Auth.async_auth_flow


def _bounded(response: httpx2.Response, parcels: Parcels, *, reads_all: bool) -> httpx2.AsyncByteStream:
    """The body of any response, with the limit of what the SDK reads it as.

    A message, or events with messages, only comes as the success of a request that accepts it. Everything else is read
    as a whole, whatever it says it is: redirects, errors, what a sign-in gets, and the answer to the end of a session.
    """
    body, request = cast("httpx2.AsyncByteStream", response.stream), response.request
    accepts = _EVENTS in request.headers.get("accept", "") and request.method in ("GET", "POST")
    kind = response.headers.get("content-type", "").lower()
    if response.is_success and accepts and kind.startswith(_EVENTS) and not reads_all:
        return Events(body, parcels)
    if response.is_success and accepts and kind.startswith("application/json"):
        return Answer(body, parcels)
    return Start(body)
