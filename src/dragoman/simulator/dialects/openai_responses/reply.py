"""A reply in the responses dialect, whole and as events.

Owns: the response around the items, its status and usage; the life of a stream; errors inside it.
Must not know: requests, how events become bytes.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import StopReason, Usage
from dragoman.simulator.dialects.dialect import Answer, ErrorForm, Frame, FrameKind, Refusal
from dragoman.simulator.dialects.openai_shared import CREATED, error_object, failure
from dragoman.simulator.json_access import JsonObject, members

from .item import Item, items_of

__all__ = ["failure_in_stream", "failure_in_whole", "frames", "whole", "with_unknown"]

# A response that ends for another reason than these is complete.
_INCOMPLETE: Final[dict[StopReason, str]] = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_FULL: "max_output_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
}

# The API repeats these members of a request in its response, with its defaults for those that are not there.
_REPEATED: Final[JsonObject] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def whole(answer: Answer) -> JsonObject:
    """The reply as one response."""
    return _finished(answer, items_of(answer))


def frames(answer: Answer) -> list[Frame]:
    """The reply as events: each is numbered, each item is announced, grows, and is repeated whole when done."""
    items = items_of(answer)
    stream = _Stream()
    running = _response(answer, "in_progress")
    stream.add("response.created", {"response": running}, "start")
    stream.add("response.in_progress", {"response": running})
    for index, item in enumerate(items):
        place: JsonObject = {"output_index": index}
        stream.add("response.output_item.added", place | {"item": item.started}, "part")
        for step in item.steps:
            stream.add(f"response.{step.type}", place | {"item_id": item.done.get("id"), **step.fields}, step.kind)
        stream.add("response.output_item.done", place | {"item": item.done})
    last = _finished(answer, items)
    stream.add(f"response.{last['status']}", {"response": last}, "end")
    return stream.frames


def failure_in_stream(refusal: Refusal, answer: Answer, number: int, form: ErrorForm) -> list[Frame]:
    """Three forms: as documented, as OpenAI's servers were seen to write it, and a response that failed."""
    stream = _Stream(number)
    error = error_object(refusal)
    code = error["code"] or error["type"]
    match form:
        case "event":
            stream.add("error", {"code": code, "message": refusal.message, "param": refusal.param}, "end")
        case "nested":
            stream.add("error", {"error": error | {"code": code}}, "end")
        case "failed":
            stream.add("response.failed", {"response": _failed(refusal, answer)}, "end")
    return stream.frames


def failure_in_whole(refusal: Refusal, answer: Answer, form: ErrorForm) -> JsonObject:
    """A response with the status `failed`, or an error as some gateways answer it, with HTTP status 200."""
    return _failed(refusal, answer) if form == "failed" else failure(refusal, answer.id("req_"))


def with_unknown(_answer: Answer, events: list[Frame], index: int) -> list[Frame]:
    """An event of a type that is not documented. It has a number, as all have; those after it count on."""
    stream = _Stream(index)
    stream.add("response.simulated.event", {"payload": {"new": True}})
    for event in events[index:]:
        fields = {name: value for name, value in members(event.data).items() if name != "sequence_number"}
        stream.add(event.name, fields, event.kind)
    return [*events[:index], *stream.frames]


class _Stream:
    """Events with their sequence numbers."""

    def __init__(self, number: int = 0) -> None:
        self._first = number
        self.frames: list[Frame] = []

    def add(self, name: str, fields: JsonObject, kind: FrameKind = "other") -> None:
        data = {"type": name, **fields, "sequence_number": self._first + len(self.frames)}
        self.frames.append(Frame(data, name, kind))


def _response(answer: Answer, status: str) -> JsonObject:
    body = answer.request.body
    repeated = {name: body[name] if body.get(name) is not None else usual for name, usual in _REPEATED.items()}
    return {
        "id": answer.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "model": answer.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
        **repeated,
    }


def _finished(answer: Answer, items: list[Item]) -> JsonObject:
    reason = answer.raw_stop_reason or _INCOMPLETE.get(answer.stop_reason)
    response = _response(answer, "incomplete" if reason else "completed")
    response["output"] = [item.done for item in items]
    response["incomplete_details"] = {"reason": reason} if reason else None
    response["completed_at"] = None if reason else CREATED + 1
    if answer.usage is not None:
        response["usage"] = _usage(answer.usage)
    return response


def _failed(refusal: Refusal, answer: Answer) -> JsonObject:
    error = error_object(refusal)
    code = error["code"] or error["type"]
    return _response(answer, "failed") | {"error": {"code": code, "message": refusal.message}}


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input or 0,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.tokens or 0,
    }
