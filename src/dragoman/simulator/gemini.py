"""The generateContent dialect, from the server's side.

Every event of a stream is a complete response with the next parts. Calls are never split. The signature of a thought
is on the part after it: on the first of several calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage

from .dialect import Answer, Dialect, Frame, FrameKind, Refusal, has_bad_signature, sign
from .exchange import Entry, JsonObject, Part, members, objects, string, text_of

_ERROR_STATUSES: Final[dict[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_KEY_INVALID: Final = "API_KEY_INVALID"
_FUNCTION_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


class _Gemini(Dialect):
    name = "gemini"
    unknown_event = Frame({"simulatedEvent": {"new": True}})

    def tools(self, body: JsonObject) -> list[JsonObject]:
        return [one for tool in objects(body.get("tools")) for one in objects(tool.get("functionDeclarations"))]

    def history(self, body: JsonObject) -> Iterator[Entry]:
        yield "system", text_of(members(body.get("systemInstruction")).get("parts"))
        for content in objects(body.get("contents")):
            parts, is_model = objects(content.get("parts")), content.get("role") == "model"
            if is_model:
                yield "model", ""
            for part in parts:
                if "functionCall" in part:
                    call = members(part["functionCall"])
                    yield ToolCall(string(call.get("id")), string(call.get("name")))
                elif "functionResponse" in part:
                    result = members(part["functionResponse"])
                    response = members(result.get("response"))
                    # The documented way to report a failure is a member `error`.
                    failed = "error" in response and "output" not in response and "result" not in response
                    data = (Json(Raw(msgspec.json.encode(response))),)
                    yield ToolResult(string(result.get("id")), string(result.get("name")), data, is_error=failed)
            if not is_model:
                yield "user", text_of(parts)

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
        contents = objects(body.get("contents"))
        if not contents:
            yield "* GenerateContentRequest.contents: contents is not specified\n"
        for index, content in enumerate(contents):
            if not objects(content.get("parts")):
                yield f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n"
        for index, declaration in enumerate(self.tools(body)):
            if not _FUNCTION_NAME.fullmatch(string(declaration.get("name"))):
                yield (
                    f"* GenerateContentRequest.tools[0].function_declarations[{index}].name: Invalid function name. "
                    "Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), "
                    "dots (.), colons (:), or dashes (-), with a maximum length of 64.\n"
                )
        for part in [part for content in contents for part in objects(content.get("parts"))]:
            name = string(members(part.get("functionCall")).get("name"))
            if has_bad_signature(string(part.get("thoughtSignature")), name):
                yield "Thought signature is not valid."

    def whole(self, answer: Answer) -> JsonObject:
        parts = _parts(answer)
        content: JsonObject = {"parts": parts, "role": "model"} if parts else {"role": "model"}
        pieces = [piece for part in parts for piece in _pieces(part, answer)]
        return _response(answer, {"content": content, **_ending(answer), **_logprobs(answer, pieces)}, final=True)

    def frames(self, answer: Answer) -> list[Frame]:
        """The reply as responses, the last of which has the finish reason and an empty text."""
        if _is_blocked(answer):
            return [Frame(self.whole(answer), kind="end")]
        result: list[Frame] = []
        for part in _parts(answer):
            kind: FrameKind = "delta" if "text" in part else "part"
            result += [_frame(answer, piece, kind, _logprobs(answer, [piece])) for piece in _pieces(part, answer)]
        return [*result, _frame(answer, {"text": ""}, "end", _ending(answer))]

    def count(self, tokens: int) -> JsonObject:
        return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}

    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        """The body also says when to try again."""
        usual = _ERROR_STATUSES.get(refusal.status, "INVALID_ARGUMENT" if refusal.status < 500 else "INTERNAL")
        details: list[JsonObject] = []
        if refusal.code == _KEY_INVALID:
            info = "type.googleapis.com/google.rpc.ErrorInfo"
            details.append({"@type": info, "reason": _KEY_INVALID, "domain": "googleapis.com"})
        if refusal.retry_after is not None:
            info = "type.googleapis.com/google.rpc.RetryInfo"
            details.append({"@type": info, "retryDelay": f"{refusal.retry_after}s"})
        status = usual if refusal.code == _KEY_INVALID else refusal.code or usual
        error: JsonObject = {"code": refusal.status, "message": refusal.message, "status": status}
        return {"error": error | ({"details": details} if details else {})}

    def bad_key(self, given: str | None) -> Refusal:
        """A wrong key is an invalid argument, with a reason in its details; a missing one is not permitted."""
        if given is None:
            text = "Method doesn't allow unregistered callers (callers without established identity)."
            return Refusal(403, f"{text} Please use API Key or other form of API consumer identity to call this API.")
        return Refusal(400, "API key not valid. Please pass a valid API key.", _KEY_INVALID)


# --- replies ---------------------------------------------------------------------------------------------------------

# A reply that ends for another reason than these stops.
_FINISH_REASONS: Final[dict[StopReason, str]] = {
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.REFUSAL: "PROHIBITED_CONTENT",
    StopReason.CONTENT_FILTER: "SAFETY",
    StopReason.CONTEXT_FULL: "MAX_TOKENS",
    StopReason.PAUSED: "OTHER",
    StopReason.OTHER: "OTHER",
}


def _is_blocked(answer: Answer) -> bool:
    """Whether the prompt was filtered: then there is no candidate at all."""
    return answer.stop_reason is StopReason.CONTENT_FILTER and not answer.blocks


def _frame(answer: Answer, part: JsonObject, kind: FrameKind, fields: JsonObject) -> Frame:
    candidate: JsonObject = {"content": {"parts": [part], "role": "model"}, **fields}
    return Frame(_response(answer, candidate, final=kind == "end"), kind=kind)


def _response(answer: Answer, candidate: JsonObject, *, final: bool) -> JsonObject:
    count = members(answer.request.body.get("generationConfig")).get("candidateCount")
    content: JsonObject = {"candidates": answer.choices(candidate, count)}
    if _is_blocked(answer):
        content = {"promptFeedback": {"blockReason": "SAFETY"}}
    usage: JsonObject = {} if answer.usage is None else {"usageMetadata": _usage(answer.usage, final=final)}
    return content | usage | {"modelVersion": answer.model, "responseId": answer.id("")}


def _ending(answer: Answer) -> JsonObject:
    """The finish reason, and the pages that the texts cite; their offsets count bytes."""
    reason = _FINISH_REASONS.get(answer.stop_reason, "STOP")
    pages, text = answer.pages(*answer.texts), "".join([block.text for block in answer.texts])
    if not pages:
        return {"finishReason": reason}
    supports: list[JsonObject] = []
    for index, (_, start, end) in enumerate(pages):
        place = {"startIndex": len(text[:start].encode()), "endIndex": len(text[:end].encode())}
        supports.append({"segment": place | {"text": text[start:end]}, "groundingChunkIndices": [index]})
    chunks = [{"web": {"uri": page.url, "title": page.title or ""}} for page, *_ in pages]
    return {"finishReason": reason, "groundingMetadata": {"groundingChunks": chunks, "groundingSupports": supports}}


def _logprobs(answer: Answer, parts: list[JsonObject]) -> JsonObject:
    config = members(answer.request.body.get("generationConfig"))
    pieces = [string(part["text"]) for part in parts if part.get("text") and "thought" not in part]
    if config.get("responseLogprobs") is not True or not pieces:
        return {}
    made = answer.logprobs(pieces, config.get("logprobs"))
    tops = [{"candidates": [{"token": t, "logProbability": p} for t, p in others]} for _, _, others in made]
    chosen = [{"token": piece, "logProbability": logprob} for piece, logprob, _ in made]
    return {"logprobsResult": {"chosenCandidates": chosen, "topCandidates": tops}}


def _usage(usage: Usage, *, final: bool) -> JsonObject:
    """Unlike in our Usage, the output does not include the thoughts."""
    prompt = usage.input or 0
    counts: JsonObject = {"promptTokenCount": prompt, "totalTokenCount": usage.tokens or 0 if final else prompt}
    if usage.cache_read is not None:
        counts["cachedContentTokenCount"] = usage.cache_read
    if final:
        counts["candidatesTokenCount"] = max((usage.output or 0) - (usage.reasoning or 0), 0)
    if final and usage.reasoning is not None:
        counts["thoughtsTokenCount"] = usage.reasoning
    return counts


def _parts(answer: Answer) -> list[JsonObject]:
    parts: list[JsonObject] = []
    signature: str | None = None  # of the thought before; empty: to be made up
    for block in answer.blocks:
        part = _part(block, answer)
        if isinstance(block, Thinking):
            signature = block.signature or ""
        elif signature is not None:
            signed = string(members(part.get("functionCall")).get("name"))
            part = {"thoughtSignature": signature or sign(signed), **part}
            signature = None
        parts.append(part)
    if signature is not None:  # nothing follows: the signature comes with an empty text
        parts.append({"text": "", "thoughtSignature": signature or sign("")})
    return parts


def _part(block: Part, answer: Answer) -> JsonObject:
    match block:
        case Text():
            return {"text": block.text}
        case Thinking():
            return {"text": block.text, "thought": True}
        case ToolCall():
            return {"functionCall": {"id": block.id, "name": block.name, "args": answer.arguments(block)}}
        case Opaque():
            return answer.opaque_value(block, "gemini")


def _pieces(part: JsonObject, answer: Answer) -> list[JsonObject]:
    """The part in pieces of one event each; only texts can be cut. A signature comes with the last piece."""
    text = part.get("text")
    if not isinstance(text, str):
        return [part]
    texts = answer.pieces(text) or [""]
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    return [*({**plain, "text": piece} for piece in texts[:-1]), {**part, "text": texts[-1]}]


GEMINI: Final = _Gemini()
