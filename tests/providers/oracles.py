"""The official SDKs as oracles: how they read recorded replies."""

from __future__ import annotations

import base64
import json
import re
import warnings
from functools import cache
from typing import Any, NamedTuple, cast

import httpx2
import openai
from anthropic._models import construct_type
from anthropic._streaming import SSEDecoder as ClaudeEvents
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from google.genai import types
from openai._streaming import SSEDecoder
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState  # pyright: ignore[reportPrivateUsage]
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from tests.providers.recorded import Exchange


class Read(NamedTuple):
    """A reply, as far as all clients agree on what it says."""

    text: str
    calls: list[tuple[str, Any]]
    """Name and arguments of each call."""
    finish: str
    usage: tuple[int | None, ...] | None
    """Input, output, read from a cache, written to it, reasoning, total."""
    refusal: str = ""


# --- Anthropic --------------------------------------------------------------------------------------------------------


def claude_message(exchange: Exchange) -> dict[str, Any]:
    """The message that the SDK makes of the reply, as plain data."""
    if not exchange.streamed:
        return construct_type(value=json.loads(exchange.body), type_=BetaMessage).to_dict(mode="json")
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in ClaudeEvents().iter_bytes(iter([exchange.body.encode()])):
        if event.event in {None, "ping"}:
            continue
        value = construct_type(value=event.json(), type_=BetaRawMessageStreamEvent)
        snapshot = accumulate_event(event=value, current_snapshot=snapshot, json_bufs=buffers, request_headers={})
    return snapshot.to_dict(mode="json")


# --- chat completions -------------------------------------------------------------------------------------------------


def openai_response(exchange: Exchange) -> Any:
    """The SDK's object for a whole reply of the responses API, or for the last event of a stream."""
    lines = [line[6:] for line in exchange.body.splitlines() if line.startswith("data: {")]
    body = json.loads(lines[-1])["response"] if exchange.streamed else json.loads(exchange.body)
    return Response.construct(**body)


def read_chat(exchange: Exchange) -> Read | str:
    """The SDK's own events, gathered by the SDK's own accumulator; or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Mistral's lists of content are not what its types say
        if not exchange.streamed:
            return _read_completion(ChatCompletion.construct(**json.loads(exchange.body)))
        state: Any = ChatCompletionStreamState()
        try:
            for event in SSEDecoder().iter_bytes(iter([exchange.body.encode()])):
                if event.data.startswith("[DONE]"):
                    break
                state.handle_chunk(ChatCompletionChunk.construct(**event.json()))
        except RuntimeError as error:
            return str(error)
        return _read_completion(state.current_completion_snapshot)


def _read_completion(completion: Any) -> Read:
    choice, usage = completion.choices[0], completion.usage
    message = choice.message
    content = message.content
    if isinstance(content, list):  # Mistral; the SDK's type says text
        content = "".join(part["text"] for part in content if part["type"] == "text")
    # Mistral's and Together's names for what was cached, which the SDK passes on as it finds them.
    cached = [getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)]
    cached += [getattr(usage, name, None) for name in ("num_cached_tokens", "cached_tokens")]
    reasoning = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None)
    counts = [getattr(usage, f"{name}_tokens", None) for name in ("prompt", "completion", "total")]
    return Read(
        text=content or "",
        calls=[(call.function.name, json.loads(call.function.arguments or "{}")) for call in message.tool_calls or []],
        finish=choice.finish_reason or "",
        usage=(*counts[:2], next((count for count in cached if count is not None), None), None, reasoning, counts[2]),
        refusal=message.refusal or "",
    )


# --- responses --------------------------------------------------------------------------------------------------------


@cache
def _client() -> tuple[openai.OpenAI, list[Exchange]]:
    waiting: list[Exchange] = []

    def answer(_request: httpx2.Request) -> httpx2.Response:
        exchange = waiting.pop()
        kind = {"content-type": exchange.headers["content-type"]}
        return httpx2.Response(exchange.status, headers=kind, content=exchange.body.encode())

    http = openai.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="none", base_url="http://127.0.0.1", http_client=http, max_retries=0), waiting


def read_response(exchange: Exchange) -> Read:
    """The reply, read by the SDK; raises its error for a refusal."""
    client, waiting = _client()
    waiting.append(exchange)
    if not exchange.streamed:
        return _read_response(client.responses.create(model="m", input="i"))
    events = list(client.responses.create(model="m", input="i", stream=True))
    if events[0].type != "response.created":  # a stream taken up in its middle, which the SDK does not accumulate
        return _read_response(cast("Any", events[-1]).response)
    state: Any = ResponseStreamState(input_tools=openai.omit, text_format=openai.omit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the SDK's own values do not always fit its own types
        for event in events:
            state.handle_event(event)
    return _read_response(state._completed_response)


def _read_response(response: Any) -> Read:
    items = response.output or []
    texts = [
        part.text for item in items if item.type == "message" for part in item.content if part.type == "output_text"
    ]
    details, usage = response.incomplete_details, response.usage
    inside, outside = getattr(usage, "input_tokens_details", None), getattr(usage, "output_tokens_details", None)
    return Read(
        text="".join(texts),
        calls=[call for item in items if (call := _call_in(item)) is not None],
        finish=(details.reason if details else None) or response.status or "",
        usage=usage
        and (
            usage.input_tokens,
            usage.output_tokens,
            getattr(inside, "cached_tokens", None),
            getattr(inside, "cache_write_tokens", None),
            getattr(outside, "reasoning_tokens", None),
            usage.total_tokens,
        ),
    )


def _call_in(item: Any) -> tuple[str, Any] | None:
    """What an item asks of the client: a function, or a search among its tools."""
    if item.type == "function_call":
        return item.name, json.loads(item.arguments)
    if item.type == "tool_search_call" and item.execution == "client":
        return "tool_search", item.arguments
    return None


# --- Gemini -----------------------------------------------------------------------------------------------------------


class Gemini(NamedTuple):
    """What the SDK reads from a reply: it leaves it to its user to put chunks together."""

    text: str
    thoughts: str
    calls: list[tuple[str | None, str | None, dict[str, Any]]]
    """Id, name and arguments."""
    signatures: list[bytes]
    finish: str | None
    block: str | None
    usage: Any
    model: str | None
    id: str | None


def gemini_responses(exchange: Exchange) -> list[Any]:
    """The SDK's objects for a whole reply, or for each chunk of a stream."""
    lines = [line.removeprefix("data: ") for line in exchange.body.splitlines() if line.startswith("data: ")]
    chunks = [json.loads(line) for line in (lines if exchange.streamed else [exchange.body])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about words that are newer than the SDK
        return [types.GenerateContentResponse._from_response(response=chunk, kwargs={}) for chunk in chunks]


def read_gemini(exchange: Exchange) -> Gemini:
    """All chunks of a reply, one after the other."""
    responses = gemini_responses(exchange)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [part for response in responses for part in response.parts or []]
    candidates = [response.candidates[0] for response in responses if response.candidates]
    finishes = [candidate.finish_reason for candidate in candidates if candidate.finish_reason]
    feedback = [response.prompt_feedback for response in responses if response.prompt_feedback]
    usages = [response.usage_metadata for response in responses if response.usage_metadata]
    return Gemini(
        text="".join(part.text for part in found if part.text and not part.thought),
        thoughts="".join(part.text for part in found if part.text and part.thought),
        calls=[(call.id, call.name, call.args or {}) for part in found if (call := part.function_call)],
        signatures=[part.thought_signature for part in found if part.thought_signature],
        finish=finishes[-1].value if finishes else None,
        block=feedback[-1].block_reason.value if feedback and feedback[-1].block_reason else None,
        usage=usages[-1] if usages else None,
        model=responses[0].model_version,
        id=responses[0].response_id,
    )


def normal(value: Any) -> Any:
    """Contents of Gemini in one spelling: the API takes names in both cases, base64 in both alphabets, and leaves empty
    arguments out or not. Ids that a client made up are left out."""
    if isinstance(value, list):
        return [normal(each) for each in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, inner in value.items():
        name = re.sub(r"_(\w)", lambda found: found[1].upper(), key)
        if name == "thoughtSignature":
            result[name] = base64.b64decode(inner.replace("-", "+").replace("_", "/"))
        else:
            result[name] = inner if name in {"args", "response"} else normal(inner)
    if result.get("args") == {}:
        del result["args"]
    if str(result.get("id", "")).startswith(("pyd_ai_", "call_gem_")):
        del result["id"]
    return result
