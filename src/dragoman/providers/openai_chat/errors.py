"""What a server says when it refuses: the many shapes of an error, inside and outside of a stream.

Owns: where code, text and status stand in each shape. Which error a code stands for is in failures.py.

    {"error": {"message", "type", "code", "param"}}         OpenAI and most others; OpenRouter's code is a status
    {"error": "text", "code": "…"}                          xAI, Hugging Face, old Ollama
    {"object": "error", "message", "type", "code"}          Mistral, vLLM; flat and without `object`: Cerebras
    {"detail": "text" or [{"loc", "msg"}]}                  servers on FastAPI
    [{"error": {…}}]                                        Gemini's compatible endpoint
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

from .wire import elements, integer, is_empty, is_object, members, string, text_or_json

_TEXTS: Final = ("message", "msg", "error_message", "detail", "title")


def read_error(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The typed error of a reply whose status says that it is one."""
    stripped = body.strip()
    try:
        if stripped.startswith(b"["):
            first = elements(Raw(stripped))
            fields = members(first[0]) if first else {}
        else:
            fields = members(stripped)
        return _make_error(fields, call, status, headers)
    except ProtocolError:  # a page of a proxy, or nothing
        return failure(call, status, None, stripped[:1000].decode(errors="replace"), headers)


def error_in(fields: dict[str, Raw], call: Call) -> ProviderError:
    """The typed error of an event or a body that came with status 200 and is an error all the same."""
    return _make_error(fields, call, None, {})


def says_error(fields: dict[str, Raw]) -> bool:
    """Whether this JSON object is an error. A chunk may be both: OpenRouter puts `error` beside `choices`."""
    error = fields.get("error")
    if error is not None and not is_empty(error):
        return True
    if "choices" in fields:
        return False
    flat = string(fields.get("message")) and ("code" in fields or "type" in fields)
    return bool(flat) or string(fields.get("object")) == "error" or "detail" in fields


def _make_error(fields: dict[str, Raw], call: Call, status: int | None, headers: Mapping[str, str]) -> ProviderError:
    inner, error = fields, fields.get("error")
    if is_object(error):
        inner = members(error)
    elif error is not None and string(error):
        inner = {**fields, "message": error}
    number = integer(inner.get("code"))
    if status is None:
        status = integer(inner.get("status_code"))
        if not status and number is not None and 400 <= number <= 599:
            status = number
    code = "" if number is not None else string(inner.get("code"))
    kind = string(inner.get("type")) or string(inner.get("status"))
    text, request_id = _text(inner), string(fields.get("request_id")) or None
    made = failure(call, status, code or kind or None, text, headers, request_id)
    if type(made) is ProviderError and code and kind:
        # A code of the server's own; the kind beside it may be one that everybody uses.
        made = failure(call, status, kind, text, headers, request_id)
        made.code = code
    return made


def _text(inner: dict[str, Raw]) -> str:
    """What was said; with what the server behind a router said, and what the model wrote that could not be used."""
    said = [text_or_json(next((inner[name] for name in _TEXTS if name in inner and not is_empty(inner[name])), None))]
    metadata, written = inner.get("metadata"), string(inner.get("failed_generation"))
    if is_object(metadata):
        said.append(text_or_json(members(metadata).get("raw")))
    if written:
        said.append(f"the model wrote: {written}")
    return ": ".join([text for text in said if text])
