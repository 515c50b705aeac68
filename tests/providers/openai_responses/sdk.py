"""What the official SDK reads from the same bytes: the oracle of the recorded exchanges."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, NamedTuple, cast

import httpx2
import openai
from openai.lib.streaming.responses._responses import ResponseStreamState  # pyright: ignore[reportPrivateUsage]

from tests.providers.recorded import Exchange


class Read(NamedTuple):
    """A reply, as far as all clients agree on what it says."""

    text: str
    calls: list[tuple[str, str]]
    """Name and arguments of each call."""
    status: str | None
    reason: str | None
    usage: tuple[int | None, ...] | None


@cache
def _client() -> tuple[openai.OpenAI, list[Exchange]]:
    waiting: list[Exchange] = []

    def answer(_request: httpx2.Request) -> httpx2.Response:
        exchange = waiting.pop()
        kind = {"content-type": exchange.headers["content-type"]}
        return httpx2.Response(exchange.status, headers=kind, content=exchange.body.encode())

    transport = httpx2.MockTransport(answer)
    http = openai.DefaultHttpxClient(transport=transport)
    return openai.OpenAI(api_key="none", base_url="http://127.0.0.1", http_client=http, max_retries=0), waiting


def read(exchange: Exchange) -> Read:
    """The reply, read by the SDK; raises its error for a refusal."""
    client, waiting = _client()
    waiting.append(exchange)
    if not exchange.streamed:
        return _read(client.responses.create(model="m", input="i"))
    events = list(client.responses.create(model="m", input="i", stream=True))
    if events[0].type != "response.created":  # a stream taken up in its middle, which the SDK does not accumulate
        return _read(cast("Any", events[-1]).response)
    state: Any = ResponseStreamState(input_tools=openai.omit, text_format=openai.omit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the SDK's own values do not always fit its own types
        for event in events:
            state.handle_event(event)
    return _read(state._completed_response)


def _read(response: Any) -> Read:
    texts: list[str] = []
    calls: list[tuple[str, str]] = []
    for item in response.output or []:
        if item.type == "message":
            texts += [part.text for part in item.content if part.type == "output_text"]
        elif item.type == "function_call":
            calls.append((item.name, item.arguments))
    details = response.incomplete_details
    return Read("".join(texts), calls, response.status, details.reason if details else None, _usage(response.usage))


def _usage(usage: Any) -> tuple[int | None, ...] | None:
    if usage is None:
        return None
    inside, outside = usage.input_tokens_details, usage.output_tokens_details
    return (
        usage.input_tokens,
        usage.output_tokens,
        getattr(inside, "cached_tokens", None),
        getattr(inside, "cache_write_tokens", None),
        getattr(outside, "reasoning_tokens", None),
        usage.total_tokens,
    )
