"""Errors of the generateContent dialect, and its list of models.

Owns: the shape of an error in a response and in a stream; `/v1beta/models`.
Must not know: why something failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.simulator.dialects.dialect import Answer, ErrorForm, Frame, Refusal
from dragoman.simulator.json_access import JsonObject

__all__ = ["bad_key", "failure", "failure_in_stream", "failure_in_whole", "headers", "model", "models", "no_model"]

_STATUSES: Final[dict[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_KEY_INVALID: Final = "API_KEY_INVALID"


def failure(refusal: Refusal, _request_id: str) -> JsonObject:
    """The body of an error. When to try again stands in the body, not in a header."""
    usual = _STATUSES.get(refusal.status, "INVALID_ARGUMENT" if refusal.status < 500 else "INTERNAL")
    key_invalid = refusal.code == _KEY_INVALID
    status = usual if key_invalid else refusal.code or usual
    error: JsonObject = {"code": refusal.status, "message": refusal.message, "status": status}
    details: list[JsonObject] = []
    if key_invalid:
        info = "type.googleapis.com/google.rpc.ErrorInfo"
        details.append({"@type": info, "reason": _KEY_INVALID, "domain": "googleapis.com"})
    if refusal.retry_after is not None:
        info = "type.googleapis.com/google.rpc.RetryInfo"
        details.append({"@type": info, "retryDelay": f"{refusal.retry_after}s"})
    if details:
        error["details"] = details
    return {"error": error}


def failure_in_stream(refusal: Refusal, answer: Answer, _number: int, _form: ErrorForm) -> list[Frame]:
    """A response that is an error; nothing comes after it."""
    return [Frame(failure(refusal, answer.id("")), "", "end")]


def failure_in_whole(refusal: Refusal, answer: Answer, _form: ErrorForm) -> JsonObject:
    """Some gateways answer an error with status 200."""
    return failure(refusal, answer.id(""))


def bad_key(given: str | None) -> Refusal:
    """A wrong key is an invalid argument here, told apart by its details; no key at all is not permitted."""
    if given is None:
        text = "Method doesn't allow unregistered callers (callers without established identity)."
        return Refusal(403, f"{text} Please use API Key or other form of API consumer identity to call this API.")
    return Refusal(400, "API key not valid. Please pass a valid API key.", _KEY_INVALID)


def no_model(name: str) -> Refusal:
    """A model that does not exist."""
    see = "Call ModelService.ListModels to see the list of available models and their supported methods."
    text = f"models/{name} is not found for API version v1beta, or is not supported for generateContent. {see}"
    return Refusal(404, text)


def headers(_request_id: str) -> dict[str, str]:
    """Headers of every response. There is no id of the request among them."""
    return {"server": "scaffolding on HTTPServer2", "x-content-type-options": "nosniff"}


def model(name: str) -> JsonObject:
    """One model."""
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def models(names: Sequence[str]) -> JsonObject:
    """One page with all models."""
    return {"models": [model(name) for name in names]}
