"""From an error in the provider's words to a typed one.

Owns: where the code, the text and the request id stand, in a refused request and inside a stream.
Must not know: which code becomes which class (failures.py has the table).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from dragoman.errors import ProviderError
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

from .wire import members, text

__all__ = ["error_inside", "error_of"]

_NO_HEADERS: Mapping[str, str] = {}


def error_of(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The error of a reply whose status is not 2xx. A gateway before the API may answer with anything."""
    try:
        code, said, request_id = _read(members(body))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        code, said, request_id = None, body.decode("utf-8", "replace"), None
    return failure(call, status, code, said, headers, headers.get("request-id") or request_id)


def error_inside(event: Mapping[str, Raw], call: Call) -> ProviderError:
    """The error that an event, or a body under a good status, tells of."""
    code, said, request_id = _read(event)
    return failure(call, None, code, said, _NO_HEADERS, request_id)


def _read(body: Mapping[str, Raw]) -> tuple[str | None, str, str | None]:
    error = bytes(body.get("error", b""))
    if error.startswith(b'"'):  # not the API's way, but that of a gateway before it
        return None, text(body["error"]) or "", text(body.get("request_id"))
    fields = members(error) if error.startswith(b"{") else {}
    said = text(fields.get("message")) or text(body.get("message")) or ""
    return text(fields.get("type")), said, text(body.get("request_id"))
