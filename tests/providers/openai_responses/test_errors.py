"""Refusals, as OpenAI and servers like it say them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.errors import (
    AuthenticationError,
    ContentFilteredError,
    ContextTooLongError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
)
from dragoman.providers.openai_responses import CODEC
from tests.providers.openai_responses.calls import make_call


def openai(code: str | None, kind: str = "invalid_request_error", message: str = "It failed.") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, openai("model_not_found"), ModelNotFoundError, "model_not_found"),
        (400, openai("context_length_exceeded"), ContextTooLongError, "context_length_exceeded"),
        (400, openai(None, message="This exceeds the context window."), ContextTooLongError, "invalid_request_error"),
        (400, openai("unsupported_value"), InvalidRequestError, "unsupported_value"),
        (400, openai("invalid_prompt"), ContentFilteredError, "invalid_prompt"),
        (400, openai("content_filter"), ContentFilteredError, "content_filter"),
        (401, openai("invalid_api_key"), AuthenticationError, "invalid_api_key"),
        (403, openai("unsupported_country_region_territory", "request_forbidden"), PermissionDeniedError, None),
        (404, openai(None, message="The model `x` does not exist"), ModelNotFoundError, None),
        (429, openai("insufficient_quota", "insufficient_quota"), RateLimitError, "insufficient_quota"),
        (429, openai("rate_limit_exceeded", "tokens"), RateLimitError, "rate_limit_exceeded"),
        (500, openai(None, "server_error"), ProviderError, "server_error"),
        (503, openai("server_is_overloaded", "service_unavailable_error"), OverloadedError, "server_is_overloaded"),
        (400, {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}, InvalidRequestError, None),
        (422, {"detail": [{"loc": ["body"], "msg": "missing"}]}, InvalidRequestError, None),
        (403, {"Message": "not authorised"}, PermissionDeniedError, None),
        (400, {"error": "plain words"}, InvalidRequestError, None),
        (400, [{"error": {"message": "in a list"}}], InvalidRequestError, None),
        (502, b"<html>bad gateway</html>", ProviderError, None),
        (502, b"\xff", ProviderError, None),
        (500, b"", ProviderError, None),
    ],
)
def test_refusals(status: int, body: Any, kind: type[ProviderError], code: str | None) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = CODEC.error(status, {"x-request-id": "req_1"}, data, make_call())
    assert type(error) is kind
    assert (error.status, error.request_id, error.provider) == (status, "req_1", "openai-responses")
    if code is not None:
        assert error.code == code


@pytest.mark.parametrize("header", ["x-request-id", "apim-request-id", "x-amzn-requestid"])
def test_request_ids(header: str) -> None:
    assert CODEC.error(500, {header: "r"}, b"", make_call()).request_id == "r"


def test_what_was_said_is_in_the_text() -> None:
    error = CODEC.error(422, {}, b'{"detail":[{"msg":"missing"}]}', make_call())
    assert '"msg":"missing"' in error.message
