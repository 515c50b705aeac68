"""Calls, replies and streams for the tests of this dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dragoman.conversation import Message, ReplyEvent, fold
from dragoman.providers import Call
from tests.providers.calls import call_of, decoder_of
from tests.providers.feeding import events_of, message_of

READER = "openai_responses"


def make_call(target: str = "openai-responses:gpt-5.6", *, stream: bool = False) -> Call:
    return call_of(target, stream=stream)


# --- replies ---------------------------------------------------------------------------------------------------------


def message_item(text: str = "Hi", **members: Any) -> dict[str, Any]:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part], **members}


def reasoning_item(*summaries: str, **members: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in summaries]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA", **members}


def call_item(name: str = "add", arguments: str = '{"a":1}', **members: Any) -> dict[str, Any]:
    item = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1"}
    return {**item, "name": name, "arguments": arguments, **members}


def response(*output: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-5.6-2026",
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 15,
        },
        **members,
    }


def whole(body: Mapping[str, Any] | bytes, call: Call | None = None) -> Message:
    """The message that a whole reply becomes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return message_of(decoder_of(call or make_call()), [data])


# --- streams ---------------------------------------------------------------------------------------------------------


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, **members}


def created(**members: Any) -> dict[str, Any]:
    return event("response.created", response=response(status="in_progress", usage=None, **members))


def ended(*output: Mapping[str, Any], kind: str = "completed", **members: Any) -> dict[str, Any]:
    return event(f"response.{kind}", response=response(*output, status=kind, **members))


def streamed_item(index: int, item: Mapping[str, Any], pieces: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The events of one item, as OpenAI sends them."""
    at: dict[str, Any] = {"output_index": index, "item_id": item.get("id", "")}
    begun = {**item, **{name: [] for name in ("content", "summary") if name in item}, "status": "in_progress"}
    if "arguments" in item:
        begun["arguments"] = ""
    events = [event("response.output_item.added", output_index=index, item=begun)]
    kind = item["type"]
    if kind == "message":
        for place, part in enumerate(item["content"]):
            here = {**at, "content_index": place}
            name = "refusal" if part["type"] == "refusal" else "output_text"
            text = part.get("refusal", part.get("text", ""))
            events.append(event("response.content_part.added", **here, part={**part, "text": ""}))
            events += [event(f"response.{name}.delta", **here, delta=piece) for piece in pieces or [text]]
            events.append(event(f"response.{name}.done", **here, text=text))
            events.append(event("response.content_part.done", **here, part=part))
    elif kind == "reasoning":
        for place, part in enumerate(item["summary"]):
            here = {**at, "summary_index": place}
            events.append(event("response.reasoning_summary_part.added", **here, part={**part, "text": ""}))
            events += [
                event("response.reasoning_summary_text.delta", **here, delta=piece)
                for piece in pieces or [part["text"]]
            ]
            events.append(event("response.reasoning_summary_text.done", **here, text=part["text"]))
    elif kind == "function_call":
        events += [
            event("response.function_call_arguments.delta", **at, delta=piece)
            for piece in pieces or [item["arguments"]]
        ]
        events.append(event("response.function_call_arguments.done", **at, arguments=item["arguments"]))
    return [*events, event("response.output_item.done", output_index=index, item=item)]


def streamed(*items: Mapping[str, Any], **members: Any) -> list[dict[str, Any]]:
    """The events of a whole reply."""
    events = [created()]
    for index, item in enumerate(items):
        events += streamed_item(index, item)
    return [*events, ended(*items, **members)]


def sse(events: Iterable[Mapping[str, Any]]) -> bytes:
    lines = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events]
    return "".join(lines).encode()


def stream_events(events: Iterable[Mapping[str, Any]] | bytes, call: Call | None = None) -> list[ReplyEvent]:
    data = events if isinstance(events, bytes) else sse(events)
    return events_of(decoder_of(call or make_call(stream=True)), [data])


def stream(events: Iterable[Mapping[str, Any]] | bytes, call: Call | None = None) -> Message:
    """The message that a stream becomes."""
    return fold(stream_events(events, call))
