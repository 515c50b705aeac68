"""Errors of the messages dialect, and its list of models.

Owns: the shape of an error in a response and in a stream; ids and rate-limit headers; `/v1/models`.
Must not know: why something failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.simulator.dialects.dialect import Answer, ErrorForm, Frame, Refusal
from dragoman.simulator.json_access import JsonObject

__all__ = ["bad_key", "failure", "failure_in_stream", "failure_in_whole", "headers", "model", "models", "no_model"]

_TYPES: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def failure(refusal: Refusal, request_id: str) -> JsonObject:
    """The body of an error, which is also the data of an error event."""
    usual = _TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
    error = {"type": refusal.code or usual, "message": refusal.message}
    return {"type": "error", "error": error, "request_id": request_id}


def failure_in_stream(refusal: Refusal, answer: Answer, _number: int, _form: ErrorForm) -> list[Frame]:
    """The stream ends after it, without a message_stop."""
    return [Frame(failure(refusal, answer.id("req_")), "error", "end")]


def failure_in_whole(refusal: Refusal, answer: Answer, _form: ErrorForm) -> JsonObject:
    """Some gateways answer an error with status 200."""
    return failure(refusal, answer.id("req_"))


def bad_key(given: str | None) -> Refusal:
    """The two texts of the API."""
    return Refusal(401, "invalid x-api-key" if given else "x-api-key header is required")


def no_model(name: str) -> Refusal:
    """A model that does not exist."""
    return Refusal(404, f"model: {name}")


def headers(request_id: str) -> dict[str, str]:
    """Headers of every response."""
    return {
        "request-id": request_id,
        "anthropic-ratelimit-requests-limit": "1000",
        "anthropic-ratelimit-requests-remaining": "999",
    }


def model(name: str) -> JsonObject:
    """One model."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
    }


def models(names: Sequence[str]) -> JsonObject:
    """One page with all models."""
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": [model(name) for name in names], "has_more": False, "first_id": first, "last_id": last}
