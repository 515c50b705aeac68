"""What the Responses API says when it refuses, as typed errors.

Owns: where in a body or an event the code and the text stand, for OpenAI and for servers that speak like it. Which code
means what is in failures.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Raw

from dragoman.errors import ProviderError
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

from .wire import MALFORMED, text_of, value_of

# Azure and Amazon name their requests in headers of their own.
_REQUEST_ID_HEADERS = ("x-request-id", "apim-request-id", "x-amzn-requestid")


def read_error(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The error of a reply whose status is not 2xx."""
    try:
        said: object = msgspec.json.decode(body)
    except MALFORMED:
        said = body.decode(errors="replace")[:1000]
    return _make_error(call, status, said, headers)


def error_in(members: Mapping[str, Raw], call: Call) -> ProviderError:
    """The error of an `error` event, of a failed response, or of a body that came with a good status."""
    said = value_of(members.get("error")) or {name: text_of(members.get(name)) for name in ("code", "message")}
    return _make_error(call, None, said, {})


def _make_error(call: Call, status: int | None, said: object, headers: Mapping[str, str]) -> ProviderError:
    code, kind, text = _find_parts(said)
    request_id = next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), None)
    error = failure(call, status, code or kind, text, headers, request_id)
    if type(error) is ProviderError and code and kind:  # a code too new for the table: its kind may be in it
        error = failure(call, status, kind, text, headers, request_id)
        error.code = code
    return error


def _find_parts(said: object) -> tuple[str | None, str | None, str]:
    """Code, kind and text, wherever a server puts them."""
    if isinstance(said, list) and said:
        said = cast("list[object]", said)[0]
    if not isinstance(said, dict):
        return None, None, said if isinstance(said, str) else ""
    members = cast("dict[str, object]", said)
    inner = members.get("error")
    if inner:
        return _find_parts(cast("object", inner)) if isinstance(inner, dict) else (None, None, str(inner))
    code, kind = members.get("code"), members.get("type")
    text = members.get("message") or members.get("detail") or members.get("Message") or ""
    return (
        code if isinstance(code, str) else None,
        kind if isinstance(kind, str) else None,
        text if isinstance(text, str) else msgspec.json.encode(text).decode(),
    )
