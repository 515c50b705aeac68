"""The generateContent dialect, from the server's side.

Every event of a stream is a complete response with the next parts. Calls come whole, whatever the delta. The
signature of a thought stands on the part after it: on the first of several calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Opaque, StopReason, Text, Thinking, ToolCall, Usage

from .dialect import Answer, Dialect, Frame, FrameKind, Refusal, is_spoilt, likelihoods, own_words, pages, several, sign
from .exchange import JsonObject, Part, Transcript, members, objects, string

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


class _Gemini(Dialect):
    name = "gemini"
    stream_type = "text/event-stream"
    whole_type = "application/json; charset=UTF-8"

    def read(self, body: JsonObject) -> Transcript:
        found = Transcript(_declarations(body))
        found.add_system(_text(members(body.get("systemInstruction"))))
        for content in objects(body.get("contents")):
            if content.get("role") == "model":
                found.add_reply()
            for call in _parts_named(content, "functionCall"):
                found.add_call(call.get("id"), call.get("name"))
            for answer in _parts_named(content, "functionResponse"):
                response = members(answer.get("response"))
                # The documented way to report a failure is a member `error`.
                failed = "error" in response and "output" not in response and "result" not in response
                parts = (Json(Raw(msgspec.json.encode(response))),)
                found.add_result(answer.get("id"), parts, name=string(answer.get("name")), failed=failed)
            if content.get("role") != "model":
                found.add_user(_text(content))
        return found

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
        contents = objects(body.get("contents"))
        if not contents:
            yield "* GenerateContentRequest.contents: contents is not specified\n"
        for index, content in enumerate(contents):
            if not objects(content.get("parts")):
                yield f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n"
        for index, declaration in enumerate(_declarations(body)):
            if not _FUNCTION_NAME.fullmatch(string(declaration.get("name"))):
                yield (
                    f"* GenerateContentRequest.tools[0].function_declarations[{index}].name: Invalid function name. "
                    "Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), "
                    "dots (.), colons (:), or dashes (-), with a maximum length of 64.\n"
                )
        for part in [part for content in contents for part in objects(content.get("parts"))]:
            name = string(members(part.get("functionCall")).get("name"))
            if is_spoilt(string(part.get("thoughtSignature")), name):
                yield "Thought signature is not valid."

    def whole(self, answer: Answer) -> JsonObject:
        if _is_blocked(answer):
            return _response(answer, final=True) | {"promptFeedback": {"blockReason": "SAFETY"}}
        parts = _parts(answer)
        content: JsonObject = {"parts": parts, "role": "model"} if parts else {"role": "model"}
        said = [piece for part in parts for piece in _pieces(part, answer)]
        candidate: JsonObject = {"content": content, "finishReason": _finish_reason(answer)}
        candidate |= _grounding(answer) | _likely(answer, said)
        return _candidates(answer, candidate) | _response(answer, final=True)

    def frames(self, answer: Answer) -> list[Frame]:
        """The reply as responses, the last of which brings the finish reason and an empty text."""
        if _is_blocked(answer):
            return [Frame(self.whole(answer), kind="end")]
        result: list[Frame] = []
        for part in _parts(answer):
            kind: FrameKind = "delta" if "text" in part else "part"
            result += [_frame(answer, piece, kind, _likely(answer, [piece])) for piece in _pieces(part, answer)]
        last = {"finishReason": _finish_reason(answer), **_grounding(answer)}
        return [*result, _frame(answer, {"text": ""}, "end", last)]

    def count(self, tokens: int) -> JsonObject:
        return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}

    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        """When to try again stands in the body, not in a header."""
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

    def unknown_event(self, answer: Answer) -> Frame:
        """A response without a candidate, with something new in it."""
        return Frame({"simulatedEvent": {"new": True}, **_response(answer, final=False)})

    def bad_key(self, given: str | None) -> Refusal:
        """A wrong key is an invalid argument here, told apart by its details; no key at all is not permitted."""
        if given is None:
            text = "Method doesn't allow unregistered callers (callers without established identity)."
            return Refusal(403, f"{text} Please use API Key or other form of API consumer identity to call this API.")
        return Refusal(400, "API key not valid. Please pass a valid API key.", _KEY_INVALID)

    def headers(self, request_id: str) -> dict[str, str]:
        return {"server": "scaffolding on HTTPServer2", "x-content-type-options": "nosniff"}


# --- requests --------------------------------------------------------------------------------------------------------

_FUNCTION_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def _parts_named(content: JsonObject, name: str) -> list[JsonObject]:
    return [members(value) for part in objects(content.get("parts")) if (value := part.get(name)) is not None]


def _text(content: JsonObject) -> str:
    return "".join(string(part.get("text")) for part in objects(content.get("parts")))


def _declarations(body: JsonObject) -> list[JsonObject]:
    return [one for tool in objects(body.get("tools")) for one in objects(tool.get("functionDeclarations"))]


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
    """A prompt that was not let through has no candidate at all."""
    return answer.stop_reason is StopReason.CONTENT_FILTER and not answer.blocks


def _frame(answer: Answer, part: JsonObject, kind: FrameKind, beside: JsonObject) -> Frame:
    candidate: JsonObject = {"content": {"parts": [part], "role": "model"}, **beside}
    return Frame(_candidates(answer, candidate) | _response(answer, final=kind == "end"), kind=kind)


def _grounding(answer: Answer) -> JsonObject:
    """The pages that the texts cite; offsets are bytes here."""
    found, said = pages(*answer.texts), "".join([block.text for block in answer.texts])
    if not found:
        return {}
    supports: list[JsonObject] = []
    for place, (_, start, end) in enumerate(found):
        segment = {
            "startIndex": len(said[:start].encode()),
            "endIndex": len(said[:end].encode()),
            "text": said[start:end],
        }
        supports.append({"segment": segment, "groundingChunkIndices": [place]})
    chunks = [{"web": {"uri": page.url, "title": page.title or ""}} for page, *_ in found]
    return {"groundingMetadata": {"groundingChunks": chunks, "groundingSupports": supports}}


def _likely(answer: Answer, parts: list[JsonObject]) -> JsonObject:
    asked = members(answer.request.body.get("generationConfig"))
    said = [string(part["text"]) for part in parts if part.get("text") and "thought" not in part]
    if asked.get("responseLogprobs") is not True or not said:
        return {}
    found = likelihoods(said, asked.get("logprobs"))
    tops = [{"candidates": [{"token": t, "logProbability": p} for t, p in others]} for _, _, others in found]
    chosen = [{"token": piece, "logProbability": logprob} for piece, logprob, _ in found]
    return {"logprobsResult": {"chosenCandidates": chosen, "topCandidates": tops}}


def _candidates(answer: Answer, candidate: JsonObject) -> JsonObject:
    count = members(answer.request.body.get("generationConfig")).get("candidateCount")
    return {"candidates": several(candidate, count)}


def _response(answer: Answer, *, final: bool) -> JsonObject:
    usage: JsonObject = {} if answer.usage is None else {"usageMetadata": _usage(answer.usage, final=final)}
    return usage | {"modelVersion": answer.model, "responseId": answer.id("")}


def _finish_reason(answer: Answer) -> str:
    return answer.raw_stop_reason or _FINISH_REASONS.get(answer.stop_reason, "STOP")


def _usage(usage: Usage, *, final: bool) -> JsonObject:
    """Here, unlike in our Usage, the output does not include the thoughts."""
    prompt = usage.input or 0
    counts: JsonObject = {"promptTokenCount": prompt, "totalTokenCount": prompt}
    if usage.cache_read is not None:
        counts["cachedContentTokenCount"] = usage.cache_read
    if final:
        counts["candidatesTokenCount"] = max((usage.output or 0) - (usage.reasoning or 0), 0)
        counts["totalTokenCount"] = usage.tokens or 0
        if usage.reasoning is not None:
            counts["thoughtsTokenCount"] = usage.reasoning
    return counts


def _parts(answer: Answer) -> list[JsonObject]:
    parts: list[JsonObject] = []
    signature: str | None = None
    """Of a thought whose next part has not come yet; empty: to be made up."""
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
            return own_words(block, "gemini")


def _pieces(part: JsonObject, answer: Answer) -> list[JsonObject]:
    """The part in pieces of one event each; only texts can be cut. A signature comes with the last piece."""
    text = part.get("text")
    if not isinstance(text, str):
        return [part]
    texts = answer.pieces(text) or [""]
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    return [*({**plain, "text": piece} for piece in texts[:-1]), {**part, "text": texts[-1]}]


GEMINI: Final = _Gemini()
