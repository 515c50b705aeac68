"""From an error in the provider's words to a typed one.

Which code becomes which class stands in failures.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from dragoman.errors import ProviderError
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure
from dragoman.providers.raw_json import read_members, read_text


def read_refusal(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The error of a reply whose status is not 2xx. A gateway before the API may answer with anything."""
    try:
        code, said, request_id = _read_error(read_members(body))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        code, said, request_id = None, body.decode("utf-8", "replace"), None
    return failure(call, status, code, said, headers, headers.get("request-id") or request_id)


def read_error_event(event: Mapping[str, Raw], call: Call) -> ProviderError:
    """The error in an event of a stream, or in a body under a good status."""
    code, said, request_id = _read_error(event)
    return failure(call, None, code, said, {}, request_id)


def _read_error(body: Mapping[str, Raw]) -> tuple[str | None, str, str | None]:
    error = bytes(body.get("error", b""))
    if error.startswith(b'"'):  # not the API's way, but that of a gateway before it
        return None, read_text(body["error"]) or "", read_text(body.get("request_id"))
    fields = read_members(error) if error.startswith(b"{") else {}
    said = read_text(fields.get("message")) or read_text(body.get("message")) or ""
    return read_text(fields.get("type")), said, read_text(body.get("request_id"))
