"""The chat-completions dialect from the server's side, and what both dialects of OpenAI have in common.

A message has one text, one refusal and one list of calls, so text blocks are joined. Thinking is not part of OpenAI's
own API; compatible servers put it into `reasoning_content`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dragoman.conversation import Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage

from .dialect import Answer, Dialect, Frame, FrameKind, Refusal
from .exchange import Entry, JsonObject, members, objects, result_parts, string, text_of

CREATED: Final = 1_767_225_600
"""The creation time of everything: replies are the same in every run."""

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST: Final = {"name": 64, "description": 1_048_576}
_MOST_TOOLS: Final = 128
_MOST_CHOICES: Final = 128

# (type, code) for each status
_KINDS: Final[dict[int, tuple[str, str | None]]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    408: ("timeout", "timeout"),
    409: ("conflict", None),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_overloaded"),
    504: ("server_error", "timeout"),
    529: ("server_error", "server_overloaded"),
}


class OpenAIDialect(Dialect):
    """Errors, which both dialects of OpenAI share."""

    id_header = "x-request-id"

    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        return {"error": error_object(refusal)}

    def bad_key(self, given: str | None) -> Refusal:
        """Like the provider, never echo the whole key."""
        if given is None:
            text = "You didn't provide an API key. You need to provide your API key in an Authorization header."
            return Refusal(401, text)
        return Refusal(401, f"Incorrect API key provided: {given[:3]}****.", "invalid_api_key")


def error_object(refusal: Refusal) -> JsonObject:
    kind, code = _KINDS.get(refusal.status, ("invalid_request_error" if refusal.status < 500 else "server_error", None))
    return {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code or code}


def tool_problems(tools: list[JsonObject], functions: Mapping[str, JsonObject]) -> Iterator[Refusal]:
    """What is wrong with the tools; `functions` has the functions among them by their paths in the request."""
    if len(tools) > _MOST_TOOLS:
        expected = f"maximum length {_MOST_TOOLS}, but got an array with length {len(tools)} instead."
        text = f"Invalid 'tools': array too long. Expected an array with {expected}"
        yield Refusal(400, text, "array_above_max_length", "tools")
    for place, function in functions.items():
        name = string(function.get("name"))
        if not _TOOL_NAME.fullmatch(name):
            expected = f"Expected a string that matches the pattern '^{_TOOL_NAME.pattern}$'."
            text = f"Invalid '{place}.name': string does not match pattern. {expected}"
            yield Refusal(400, text, "invalid_value", f"{place}.name")
        for member, longest in _LONGEST.items():
            length = len(string(function.get(member)))
            if length > longest:
                expected = f"maximum length {longest}, but got a string with length {length} instead."
                text = f"Invalid '{place}.{member}': string too long. Expected a string with {expected}"
                yield Refusal(400, text, "string_above_max_length", f"{place}.{member}")


# --- replies ---------------------------------------------------------------------------------------------------------

# A reply that ends for another reason than these stops.
_FINISH_REASONS: Final[dict[StopReason, str]] = {
    StopReason.TOOL_CALLS: "tool_calls",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTENT_FILTER: "content_filter",
    StopReason.CONTEXT_FULL: "length",
}


class _OpenAIChat(OpenAIDialect):
    name = "openai_chat"
    unknown_event = Frame({"object": "chat.completion.simulated", "choices": [], "payload": {"new": True}})

    def tools(self, body: JsonObject) -> list[JsonObject]:
        return [members(tool.get("function")) or tool for tool in objects(body.get("tools"))]

    def history(self, body: JsonObject) -> Iterator[Entry]:
        for message in objects(body.get("messages")):
            role, content = message.get("role"), message.get("content")
            if role == "assistant":
                yield "model", ""
            for call in objects(message.get("tool_calls")):
                yield ToolCall(string(call.get("id")), string(members(call.get("function")).get("name")))
            if role == "tool":
                yield ToolResult(string(message.get("tool_call_id")), "", result_parts(content))
            elif role == "user":
                yield "user", text_of(content)
            elif role in {"system", "developer"}:
                yield "system", text_of(content)

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[Refusal]:
        if not string(body.get("model")):
            yield Refusal(400, "you must provide a model parameter")
        if "messages" not in body:
            yield Refusal(400, "Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
        if not objects(body.get("messages")):
            expected = "Expected an array with minimum length 1, but got an empty array instead."
            yield Refusal(400, f"Invalid 'messages': empty array. {expected}", "empty_array", "messages")
        choices = body.get("n")
        if isinstance(choices, int) and not 1 <= choices <= _MOST_CHOICES:
            text = f"Invalid 'n': Expected a value from 1 to {_MOST_CHOICES}, but got {choices} instead."
            yield Refusal(400, text, "integer_out_of_range", "n")
        tools = objects(body.get("tools"))
        functions = {f"tools[{index}].function": members(tool.get("function")) for index, tool in enumerate(tools)}
        yield from tool_problems(tools, {place: one for place, one in functions.items() if one})

    def whole(self, answer: Answer) -> JsonObject:
        text, thinking = _join_texts(answer, Text), _join_texts(answer, Thinking)
        refused = answer.stop_reason is StopReason.REFUSAL
        message: JsonObject = {
            "role": "assistant",
            "content": None if refused or not text else text,
            "refusal": text if refused else None,
            "annotations": _annotations(answer),
        }
        if thinking:
            message["reasoning_content"] = thinking
        for block in answer.blocks:
            if isinstance(block, Opaque):
                message |= answer.opaque_value(block, self.name)
        calls = [block for block in answer.blocks if isinstance(block, ToolCall)]
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        pieces = [piece for block in answer.texts for piece in answer.pieces(block.text)]
        choice: JsonObject = {
            "message": message,
            "logprobs": _logprobs(answer, pieces),
            "finish_reason": _FINISH_REASONS.get(answer.stop_reason, "stop"),
        }
        usage: JsonObject = {} if answer.usage is None else {"usage": _usage(answer.usage)}
        return _completion(answer, "chat.completion", choice) | usage

    def frames(self, answer: Answer) -> list[Frame]:
        """The reply in chunks. Usage has a chunk of its own, if the request asked for it."""
        calls = any(isinstance(block, ToolCall) for block in answer.blocks)
        result = [_chunk(answer, {"role": "assistant", "content": None if calls else "", "refusal": None}, "start")]
        field = "refusal" if answer.stop_reason is StopReason.REFUSAL else "content"
        index = 0
        for block in answer.blocks:
            match block:
                case Text():
                    result += [_chunk(answer, {field: piece}, pieces=[piece]) for piece in answer.pieces(block.text)]
                case Thinking():
                    result += [_chunk(answer, {"reasoning_content": piece}) for piece in answer.pieces(block.text)]
                case ToolCall():
                    result += _call_chunks(answer, block, index)
                    index += 1
                case Opaque():
                    result.append(_chunk(answer, answer.opaque_value(block, self.name)))
        if annotations := _annotations(answer):
            result.append(_chunk(answer, {"annotations": annotations}))
        result.append(_chunk(answer, {}, "finish", finish_reason=_FINISH_REASONS.get(answer.stop_reason, "stop")))
        if answer.usage is not None and _wants_usage(answer):
            totals: JsonObject = {"choices": [], "usage": _usage(answer.usage)}
            result.append(Frame(_completion(answer, "chat.completion.chunk", {}) | totals, kind="finish"))
        return [*result, Frame(b"[DONE]", kind="end")]


def _completion(answer: Answer, kind: str, choice: JsonObject) -> JsonObject:
    return {
        "id": answer.id("chatcmpl-"),
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "choices": answer.choices(choice, answer.request.body.get("n")),
    }


def _annotations(answer: Answer) -> list[JsonObject]:
    return [{"type": "url_citation", "url_citation": page} for page in url_citations(answer, *answer.texts)]


def url_citations(answer: Answer, *texts: Text) -> list[JsonObject]:
    """The pages that texts cite, as both dialects of OpenAI write them."""
    return [
        {"url": page.url, "title": page.title or "", "start_index": start, "end_index": end}
        for page, start, end in answer.pages(*texts)
    ]


def token_logprobs(answer: Answer, pieces: list[str], count: object) -> list[JsonObject]:
    """Logprobs of pieces, as both dialects of OpenAI write them."""
    return [
        {"token": piece, "logprob": logprob, "top_logprobs": [{"token": t, "logprob": p} for t, p in others]}
        for piece, logprob, others in answer.logprobs(pieces, count)
    ]


def _logprobs(answer: Answer, pieces: list[str]) -> JsonObject | None:
    body = answer.request.body
    wanted = bool(pieces) and body.get("logprobs") is True
    return {"content": token_logprobs(answer, pieces, body.get("top_logprobs"))} if wanted else None


def _chunk(
    answer: Answer,
    delta: JsonObject,
    kind: FrameKind = "delta",
    *,
    finish_reason: str | None = None,
    pieces: list[str] | None = None,
) -> Frame:
    usage: JsonObject = {"usage": None} if _wants_usage(answer) else {}
    choice: JsonObject = {"delta": delta, "logprobs": _logprobs(answer, pieces or []), "finish_reason": finish_reason}
    return Frame(_completion(answer, "chat.completion.chunk", choice) | usage, kind=kind)


def _call_chunks(answer: Answer, call: ToolCall, index: int) -> list[Frame]:
    """Id and name come once, with empty arguments; then the arguments in pieces."""
    head = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in answer.pieces(call.arguments)]
    deltas = [_chunk(answer, {"tool_calls": [piece]}) for piece in pieces]
    return [_chunk(answer, {"tool_calls": [head]}, "part"), *deltas]


def _wants_usage(answer: Answer) -> bool:
    return members(answer.request.body.get("stream_options")).get("include_usage") is True


def _join_texts(answer: Answer, kind: type[Text] | type[Thinking]) -> str:
    return "".join(block.text for block in answer.blocks if isinstance(block, kind))


def _usage(usage: Usage) -> JsonObject:
    written = {} if usage.cache_write is None else {"cache_write_tokens": usage.cache_write}
    return {
        "prompt_tokens": usage.input or 0,
        "completion_tokens": usage.output or 0,
        "total_tokens": usage.tokens or 0,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read or 0, **written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
    }


OPENAI_CHAT: Final = _OpenAIChat()
