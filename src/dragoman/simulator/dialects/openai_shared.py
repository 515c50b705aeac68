"""What the two dialects of OpenAI have in common: errors, headers and the list of models.

Owns: the shape of an error, `x-` headers, `/v1/models`.
Must not know: either dialect's requests and replies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dragoman.simulator.dialects.dialect import Refusal
from dragoman.simulator.json_access import JsonObject

__all__ = [
    "CREATED",
    "bad_key",
    "error_object",
    "failure",
    "headers",
    "model",
    "models",
    "no_model",
    "tool_name_problem",
]

CREATED: Final = 1_767_225_600
"""The moment at which everything here was made: a fixed one, so that replies are the same in every run."""

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME_LENGTH: Final = 64

# (type, code) for each status
_KINDS: Final[dict[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    408: ("timeout", "timeout"),
    409: ("conflict", None),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "server_overloaded"),
    504: ("server_error", "timeout"),
    529: ("server_error", "server_overloaded"),
}


def error_object(refusal: Refusal) -> JsonObject:
    """What stands in `error`."""
    kind, code = _KINDS.get(refusal.status, ("invalid_request_error" if refusal.status < 500 else "server_error", None))
    return {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code or code}


def failure(refusal: Refusal, _request_id: str) -> JsonObject:
    """The body of an error. The request's id is in the headers only."""
    return {"error": error_object(refusal)}


def bad_key(given: str | None) -> Refusal:
    """The key is never echoed whole, not even by the provider."""
    if given is None:
        return Refusal(
            401, "You didn't provide an API key. You need to provide your API key in an Authorization header."
        )
    return Refusal(401, f"Incorrect API key provided: {given[:3]}****.", "invalid_api_key")


def no_model(name: str) -> Refusal:
    """A model that does not exist."""
    return Refusal(404, f"The model `{name}` does not exist or you do not have access to it.", "model_not_found")


def tool_name_problem(name: str, place: str) -> Refusal | None:
    """What is wrong with a function's name."""
    if not _TOOL_NAME.fullmatch(name):
        expected = f"Expected a string that matches the pattern '^{_TOOL_NAME.pattern}$'."
        return Refusal(400, f"Invalid '{place}': string does not match pattern. {expected}", "invalid_value", place)
    if len(name) > _TOOL_NAME_LENGTH:
        expected = (
            f"Expected a string with maximum length {_TOOL_NAME_LENGTH}, but got a string with length {len(name)}"
        )
        text = f"Invalid '{place}': string too long. {expected} instead."
        return Refusal(400, text, "string_above_max_length", place)
    return None


def headers(request_id: str) -> dict[str, str]:
    """Headers of every response."""
    return {
        "x-request-id": request_id,
        "openai-processing-ms": "1",
        "openai-version": "2020-10-01",
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "999",
    }


def model(name: str) -> JsonObject:
    """One model."""
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "dragoman-simulator"}


def models(names: Sequence[str]) -> JsonObject:
    """All models."""
    return {"object": "list", "data": [model(name) for name in names]}
