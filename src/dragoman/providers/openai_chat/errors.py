"""What a server says when it refuses: the many shapes of an error, inside and outside of a stream.

Owns: where code, text and status stand in each shape.
Must not know: which error a code stands for (failures.py does).

    {"error": {"message", "type", "code", "param"}}         OpenAI and most others; OpenRouter's code is a status
    {"error": "text", "code": "…"}                          xAI, Hugging Face, old Ollama
    {"object": "error", "message", "type", "code"}          Mistral, vLLM; flat and without `object`: Cerebras
    {"detail": "text" or [{"loc", "msg"}]}                  servers on FastAPI
    [{"error": {…}}]                                        Gemini's compatible endpoint
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Raw

from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

from .wire import elements, integer, is_nothing, members, string, text_or_json

__all__ = ["error_in", "error_of", "says_error"]

_TEXTS: Final = ("message", "msg", "error_message", "detail", "title")


class _Said(NamedTuple):
    text: str
    code: str = ""
    kind: str = ""
    status: int | None = None
    request_id: str | None = None


def error_of(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The typed error of a reply whose status says that it is one."""
    said = _read(body)
    return _typed(call, said._replace(status=status), headers)


def error_in(fields: dict[str, Raw], call: Call) -> ProviderError:
    """The typed error of an event or a body that came with status 200 and is an error all the same."""
    return _typed(call, _said(fields), {})


def says_error(fields: dict[str, Raw]) -> bool:
    """Whether this JSON object is an error. A chunk may be both: OpenRouter puts `error` beside `choices`."""
    error = fields.get("error")
    if error is not None and not is_nothing(error):
        return True
    if "choices" in fields:
        return False
    flat = string(fields.get("message")) and ("code" in fields or "type" in fields)
    return bool(flat) or string(fields.get("object")) == "error" or "detail" in fields


def _typed(call: Call, said: _Said, headers: Mapping[str, str]) -> ProviderError:
    error = failure(call, said.status, said.code or said.kind or None, said.text, headers, said.request_id)
    if type(error) is ProviderError and said.code and said.kind:
        # A code of the server's own; the kind beside it may be one that everybody uses.
        error = failure(call, said.status, said.kind, said.text, headers, said.request_id)
        error.code = said.code
    return error


def _read(body: bytes) -> _Said:
    stripped = body.strip()
    try:
        if stripped.startswith(b"["):
            first = elements(Raw(stripped))
            return _said(members(first[0])) if first else _Said("")
        return _said(members(stripped))
    except ProtocolError:  # a page of a proxy, or nothing
        return _Said(stripped[:1000].decode(errors="replace"))


def _said(fields: dict[str, Raw]) -> _Said:
    inner, error = fields, fields.get("error")
    if error is not None and bytes(error).startswith(b"{"):
        inner = members(error)
    elif error is not None and string(error):
        inner = {**fields, "message": error}
    code, number = inner.get("code"), None
    status = integer(inner.get("status_code"))
    if code is not None:
        number = integer(code)
        if number is not None and 400 <= number <= 599:
            status = status or number
    return _Said(
        text=_text(inner),
        code="" if number is not None else string(code),
        kind=string(inner.get("type")) or string(inner.get("status")),
        status=status,
        request_id=string(fields.get("request_id")) or None,
    )


def _text(inner: dict[str, Raw]) -> str:
    said = next((inner[name] for name in _TEXTS if name in inner and not is_nothing(inner[name])), None)
    text = text_or_json(said)
    # What the server behind a router said, and what the model wrote that could not be used.
    metadata = inner.get("metadata")
    if metadata is not None and bytes(metadata).startswith(b"{"):
        text = _with(text, text_or_json(members(metadata).get("raw")))
    written = string(inner.get("failed_generation"))
    return _with(text, f"the model wrote: {written}") if written else text


def _with(text: str, more: str) -> str:
    return f"{text}: {more}" if text and more else text or more
