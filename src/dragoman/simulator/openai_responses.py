"""The responses dialect, from the server's side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman.conversation import Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage

from .dialect import Answer, Frame, FrameKind, Refusal, sign
from .exchange import Entry, JsonObject, Part, items, members, objects, result_parts, string, text_of
from .openai_chat import CREATED, OpenAIDialect, error_object, token_logprobs, tool_problems, url_citations

# --- requests --------------------------------------------------------------------------------------------------------

_OUTPUTS: Final = {
    **{f"{name}_call_output": f"{name}_call" for name in ("function", "custom_tool", "local_shell", "shell")},
    **{f"{name}_call_output": f"{name}_call" for name in ("apply_patch", "computer")},
    "tool_search_output": "tool_search_call",
    "mcp_approval_response": "mcp_approval_request",
}
"""The types of items with which a client answers, each with the type of the item that it answers."""
_HOSTED: Final = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools")
_OF_THE_MODEL: Final = ("reasoning", *_OUTPUTS.values(), *_HOSTED)


def _id_of(item: JsonObject) -> str:
    return string(item.get("call_id") or item.get("approval_request_id") or item.get("id"))


def _runs_at_provider(item: JsonObject) -> bool:
    """Whether the provider itself runs the tool of an item that otherwise waits for the client."""
    environment = members(item.get("environment")).get("type")
    return item.get("execution") == "server" or environment not in {None, "local"}


def _input(body: JsonObject) -> list[JsonObject]:
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)


def _reasoning_problems(entries: list[JsonObject]) -> Iterator[Refusal]:
    """A reasoning item belongs to what the model did next: a message or call of its own, or a hosted tool's item."""
    for item, following in zip(entries, [*entries[1:], JsonObject()], strict=False):
        if "role" in following:
            own = following["role"] == "assistant"
        else:
            own = following.get("type") not in {None, *_OUTPUTS}
        if item.get("type") == "reasoning" and not own:
            text = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            yield Refusal(400, text, None, "input")


# --- replies ---------------------------------------------------------------------------------------------------------

# A response that ends for another reason than these is complete.
_INCOMPLETE: Final[dict[StopReason, str]] = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_FULL: "max_output_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
}

# A response repeats these fields of its request, or their defaults.
_REPEATED: Final[JsonObject] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}


class _OpenAIResponses(OpenAIDialect):
    name = "openai_responses"
    unknown_event = Frame({"type": "response.simulated", "payload": {"new": True}}, "response.simulated")

    def history(self, body: JsonObject) -> Iterator[Entry]:
        yield "system", string(body.get("instructions"))
        for item in _input(body):
            kind, role = string(item.get("type")), item.get("role")
            if kind in _OF_THE_MODEL or role == "assistant":
                yield "model", ""
            if _runs_at_provider(item):
                continue
            if kind in _OUTPUTS.values():
                yield ToolCall(_id_of(item), string(item.get("name")) or kind)
            elif kind in _OUTPUTS:
                plain = isinstance(item.get("output"), str) or kind == "function_call_output"
                yield ToolResult(_id_of(item), "", result_parts(item.get("output") if plain else [item]))
            elif role in {"system", "developer"}:
                yield "system", text_of(item.get("content"))
            elif role == "user":
                yield "user", text_of(item.get("content"))

    def is_continued(self, body: JsonObject) -> bool:
        return any(body.get(name) for name in ("previous_response_id", "conversation", "prompt"))

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[Refusal]:
        if not string(body.get("model")):
            yield Refusal(400, "Missing required parameter: 'model'.", "missing_required_parameter", "model")
        if not body.get("input") and not self.is_continued(body):
            one_of = '"input" or "previous_response_id" or "prompt" or "conversation"'
            yield Refusal(400, f"One of {one_of} must be provided.", "missing_required_parameter", "input")
        tools = objects(body.get("tools"))
        yield from tool_problems(
            tools, {f"tools[{index}]": tool for index, tool in enumerate(tools) if tool.get("type") == "function"}
        )
        yield from _reasoning_problems(_input(body))

    def whole(self, answer: Answer) -> JsonObject:
        return _finished_response(answer, _items(answer))

    def count(self, tokens: int) -> JsonObject:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def frames(self, answer: Answer) -> list[Frame]:
        """The reply as numbered events: each item is added, grows, and is repeated when it is done."""
        output = _items(answer)
        running: JsonObject = {"response": _response(answer, "in_progress")}
        events: list[_Event] = [("response.created", running, "start"), ("response.in_progress", running, "other")]
        for index, item in enumerate(output):
            place: JsonObject = {"output_index": index}
            events.append(("response.output_item.added", place | {"item": item.started}, "part"))
            for name, fields, kind in item.steps:
                events.append((f"response.{name}", place | {"item_id": item.done.get("id")} | fields, kind))
            events.append(("response.output_item.done", place | {"item": item.done}, "other"))
        last = _finished_response(answer, output)
        events.append((f"response.{last['status']}", {"response": last}, "end"))
        return _number(events)

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int) -> Frame:
        error = error_object(refusal)
        last: JsonObject = {"code": error["code"] or error["type"], "message": refusal.message, "param": refusal.param}
        return _number([("error", last, "end")], number)[0]


_Event: TypeAlias = tuple[str, JsonObject, FrameKind]
"""Its type, its fields without the number, and its kind."""


def _number(events: list[_Event], first: int = 0) -> list[Frame]:
    return [
        Frame({"type": name, **fields, "sequence_number": number}, name, kind)
        for number, (name, fields, kind) in enumerate(events, first)
    ]


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


def _finished_response(answer: Answer, output: list[_Item]) -> JsonObject:
    reason = _INCOMPLETE.get(answer.stop_reason)
    return _response(answer, "incomplete" if reason else "completed") | {
        "output": [item.done for item in output],
        "incomplete_details": {"reason": reason} if reason else None,
        "completed_at": None if reason else CREATED + 1,
        "usage": None if answer.usage is None else _usage(answer.usage),
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input or 0,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.tokens or 0,
    }


# --- output items ----------------------------------------------------------------------------------------------------


class _Item(Struct, frozen=True):
    """An output item: at its start, when it is done, and the events in between, without the item's index."""

    started: JsonObject
    done: JsonObject
    steps: list[_Event]


def _items(answer: Answer) -> list[_Item]:
    return [_item(answer, block, index) for index, block in enumerate(answer.blocks)]


def _item(answer: Answer, block: Part, index: int) -> _Item:
    match block:
        case Text():
            return _message(answer, block, index)
        case Thinking():
            return _reasoning(answer, block, index)
        case ToolCall():
            return _call(answer, block, index)
        case Opaque():
            item = answer.opaque_value(block, "openai_responses")
            return _Item(item, item, [])


def _status(answer: Answer) -> str:
    return "incomplete" if answer.stop_reason is StopReason.MAX_TOKENS else "completed"


def _message(answer: Answer, block: Text, index: int) -> _Item:
    base: JsonObject = {"id": f"{answer.id('msg_')}_{index}", "type": "message", "role": "assistant"}
    pieces, body = answer.pieces(block.text), answer.request.body
    if answer.stop_reason is StopReason.REFUSAL:
        kind = field = "refusal"
        details: JsonObject = {}
        logprobs: JsonObject = {}
    else:
        kind, field = "output_text", "text"
        cited = [{"type": "url_citation", **page} for page in url_citations(answer, block)]
        wanted = "message.output_text.logprobs" in items(body.get("include"))
        likely = token_logprobs(answer, pieces, body.get("top_logprobs")) if wanted else []
        details = {"annotations": cited, "logprobs": likely}
        logprobs = {"logprobs": []}
    part: JsonObject = {"type": kind, **details, field: block.text}
    empty = part | {name: list[object]() for name in details} | {field: ""}
    place: JsonObject = {"content_index": 0}
    steps: list[_Event] = [
        ("content_part.added", place | {"part": empty}, "other"),
        *((f"{kind}.delta", place | {"delta": piece, **logprobs}, "delta") for piece in pieces),
        (f"{kind}.done", place | {field: block.text, **logprobs}, "other"),
        ("content_part.done", place | {"part": part}, "other"),
    ]
    done = base | {"status": _status(answer), "content": [part]}
    return _Item({**base, "status": "in_progress", "content": []}, done, steps)


def _reasoning(answer: Answer, block: Thinking, index: int) -> _Item:
    base: JsonObject = {"id": f"{answer.id('rs_')}_{index}", "type": "reasoning", "summary": []}
    encrypted = block.encrypted
    if encrypted is None and "reasoning.encrypted_content" in items(answer.request.body.get("include")):
        encrypted = sign(block.text)
    if encrypted is not None:
        base["encrypted_content"] = encrypted
    if not block.text:
        return _Item(base, base, [])
    part: JsonObject = {"type": "summary_text", "text": block.text}
    place: JsonObject = {"summary_index": 0}
    deltas = [place | {"delta": piece} for piece in answer.pieces(block.text)]
    steps: list[_Event] = [
        ("reasoning_summary_part.added", place | {"part": part | {"text": ""}}, "other"),
        *(("reasoning_summary_text.delta", delta, "delta") for delta in deltas),
        ("reasoning_summary_text.done", place | {"text": block.text}, "other"),
        ("reasoning_summary_part.done", place | {"part": part}, "other"),
    ]
    return _Item(base, base | {"summary": [part]}, steps)


def _call(answer: Answer, call: ToolCall, index: int) -> _Item:
    base: JsonObject = {"id": f"{answer.id('fc_')}_{index}", "type": "function_call", "call_id": call.id}
    base["name"] = call.name
    steps: list[_Event] = [
        *(("function_call_arguments.delta", {"delta": piece}, "delta") for piece in answer.pieces(call.arguments)),
        ("function_call_arguments.done", {"arguments": call.arguments}, "other"),
    ]
    return _Item(
        base | {"status": "in_progress", "arguments": ""},
        base | {"status": _status(answer), "arguments": call.arguments},
        steps,
    )


OPENAI_RESPONSES: Final = _OpenAIResponses()
