"""Refusals: Google's words, texts and details become typed errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.errors import (
    AuthenticationError,
    ContextTooLongError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    RequestTimeoutError,
)
from dragoman.providers.gemini import CODEC
from tests.providers.gemini.case import a_call


def refused(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CODEC.error(status, headers or {}, data, a_call())


@pytest.mark.parametrize(
    ("status", "word", "text", "kind"),
    [
        (400, "INVALID_ARGUMENT", "Invalid value at 'contents'", InvalidRequestError),
        (400, "INVALID_ARGUMENT", "The input token count (2000000) exceeds the maximum number", ContextTooLongError),
        (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", InvalidRequestError),
        (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", AuthenticationError),
        (403, "PERMISSION_DENIED", "Your API key was reported as leaked.", PermissionDeniedError),
        (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta", ModelNotFoundError),
        (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", RateLimitError),
        (500, "INTERNAL", "An internal error has occurred.", ProviderError),
        (503, "UNAVAILABLE", "The model is overloaded.", OverloadedError),
        (504, "DEADLINE_EXCEEDED", "Deadline expired.", RequestTimeoutError),
    ],
)
def test_words(status: int, word: str, text: str, kind: type[ProviderError]) -> None:
    body = {"error": {"code": status, "message": text, "status": word}}
    for form in (body, [body]):
        error = refused(status, form)
        assert type(error) is kind
        assert (error.status, error.code, error.provider) == (status, word, "gemini")
        assert text in error.message


def test_a_wrong_key() -> None:
    """Google calls it an invalid argument and puts the reason into the details."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
    }
    body = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [info]}}
    assert isinstance(refused(400, body), AuthenticationError)


@pytest.mark.parametrize(
    ("delay", "seconds"), [("23s", 23.0), ("0.847655010s", 0.84765501), ("soon", None), (5, None), (None, None)]
)
def test_the_time_to_wait(delay: Any, seconds: float | None) -> None:
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    error = refused(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})
    assert isinstance(error, RateLimitError)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"text"',
        b'{"error": "overloaded"}',
        b'{"error": {"message": 5, "details": {}}}',
        b'{"detail": "no such route"}',
        b"[" * 100_000,
    ],
)
def test_bodies_that_are_not_googles(body: bytes) -> None:
    assert isinstance(refused(503, body), OverloadedError)


def test_the_text_of_other_bodies_is_told() -> None:
    assert "Bad gateway" in refused(502, b"<html>Bad gateway</html>").message
    assert "no such route" in refused(404, {"detail": "no such route"}).message
    assert "too busy" in refused(503, {"error": "too busy"}).message
