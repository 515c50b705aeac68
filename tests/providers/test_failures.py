"""Error responses of all providers as typed errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.conversation import Conversation
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
    RequestTimeoutError,
)
from dragoman.providers import Call, Profile, failure, read_refusal

CALL = Call(model="m-1", conversation=Conversation(), profile=Profile(provider="p", dialect="d"))

KINDS: list[tuple[int | None, str | None, str, type[ProviderError]]] = [
    # By status alone.
    (400, None, "bad", InvalidRequestError),
    (401, None, "who are you", AuthenticationError),
    (402, None, "pay first", RateLimitError),
    (403, None, "no", PermissionDeniedError),
    (404, None, "no such path", InvalidRequestError),
    (404, None, "The model `x` does not exist", ModelNotFoundError),
    (408, None, "", RequestTimeoutError),
    (413, None, "request too large", InvalidRequestError),
    (422, None, "", InvalidRequestError),
    (429, None, "slow", RateLimitError),
    (500, None, "oops", ProviderError),
    (503, None, "", OverloadedError),
    (504, None, "", RequestTimeoutError),
    (529, None, "", OverloadedError),
    (418, None, "", ProviderError),
    # A code says more than a status.
    (400, "model_not_found", "", ModelNotFoundError),
    (400, "content_filter", "", ContentFilteredError),
    (400, "context_length_exceeded", "", ContextTooLongError),
    (429, "insufficient_quota", "", RateLimitError),
    (500, "overloaded_error", "", OverloadedError),
    (400, "UNAUTHENTICATED", "", AuthenticationError),
    (429, "RESOURCE_EXHAUSTED", "", RateLimitError),
    (400, "something_new", "", InvalidRequestError),
    # A code that only says "invalid" leaves it to the text.
    (400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum", ContextTooLongError),
    (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens",
        ContextTooLongError,
    ),
    (413, None, "too many tokens", ContextTooLongError),
    (404, "invalid_request_error", "model: claude-9", ModelNotFoundError),
    (400, "invalid_request_error", "messages: at least one message is required", InvalidRequestError),
    # A status that means something else is not overruled by words.
    (429, None, "too many tokens per minute", RateLimitError),
    (500, None, "context window", ProviderError),
    # In the middle of a stream there is no status.
    (None, "overloaded_error", "Overloaded", OverloadedError),
    (None, "rate_limit_exceeded", "", RateLimitError),
    (None, None, "maximum context length is 8192", ContextTooLongError),
    (None, None, "", ProviderError),
]


@pytest.mark.parametrize(("status", "code", "text", "kind"), KINDS)
def test_status_and_code_decide_the_class(
    status: int | None, code: str | None, text: str, kind: type[ProviderError]
) -> None:
    error = failure(CALL, status, code, text, {})
    assert type(error) is kind
    assert (error.provider, error.model, error.status, error.code) == ("p", "m-1", status, code)


def test_the_message_names_model_status_and_reason() -> None:
    assert failure(CALL, 400, None, "  Two\nlines.  ", {}).message == "p:m-1 refused the request (400): Two lines."
    assert failure(CALL, None, None, "", {}).message == "p:m-1 refused the request: no reason was given."
    assert len(failure(CALL, 500, None, "x" * 10_000, {}).message) < 1_100


# --- bodies: a gateway may speak any dialect, so there is one reader for all ------------------------------------------

_INVALID = "invalid_request_error"


def refused(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_refusal(status, headers or {}, data, CALL)


def openai(code: str | None, kind: str = _INVALID, message: str = "It failed.") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def google(status: int, word: str, text: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": text, "status": word}}


BODIES: list[tuple[int, Any, type[ProviderError], str | None]] = [
    (400, openai("model_not_found"), ModelNotFoundError, "model_not_found"),
    (400, openai(None, message="This exceeds the context window."), ContextTooLongError, _INVALID),
    (400, openai("unsupported_value"), InvalidRequestError, "unsupported_value"),
    (400, openai("invalid_prompt"), ContentFilteredError, "invalid_prompt"),
    (401, openai("invalid_api_key"), AuthenticationError, "invalid_api_key"),
    (403, openai("unsupported_country", "request_forbidden"), PermissionDeniedError, "unsupported_country"),
    (429, openai("rate_limit_exceeded", "tokens"), RateLimitError, "rate_limit_exceeded"),
    (500, openai(None, "server_error"), ProviderError, "server_error"),
    (503, openai("server_is_overloaded", "service_unavailable_error"), OverloadedError, "server_is_overloaded"),
    (429, {"error": {"code": 429, "message": "no", "metadata": {"raw": "busy"}}}, RateLimitError, None),
    (400, {"error": "too long: context length 8192", "code": "invalid"}, ContextTooLongError, "invalid"),
    (400, {"object": "error", "message": "no", "type": _INVALID, "code": "3051"}, InvalidRequestError, "3051"),
    (400, {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}, InvalidRequestError, None),
    (422, {"detail": [{"loc": ["body"], "msg": "extra"}]}, InvalidRequestError, None),
    (403, {"message": "no", "type": "forbidden", "code": "x"}, PermissionDeniedError, "x"),
    (403, {"Message": "not authorised"}, PermissionDeniedError, None),
    (529, {"type": "error", "error": {"type": "overloaded_error"}}, OverloadedError, "overloaded_error"),
    (400, google(400, "INVALID_ARGUMENT", "The input token count (20) exceeds"), ContextTooLongError, None),
    (401, google(401, "UNAUTHENTICATED", "no"), AuthenticationError, "UNAUTHENTICATED"),
    (404, google(404, "NOT_FOUND", "models/gemini-9 is not found"), ModelNotFoundError, "NOT_FOUND"),
    (504, google(504, "DEADLINE_EXCEEDED", "late"), RequestTimeoutError, "DEADLINE_EXCEEDED"),
    (400, [google(400, "INVALID", "no")], InvalidRequestError, "INVALID"),
    # Codes that say less than the kind, the status or the text beside them: DeepSeek, xAI, Azure and others.
    (401, openai(_INVALID, "authentication_error", "Authentication Fails"), AuthenticationError, _INVALID),
    (401, openai(_INVALID), AuthenticationError, _INVALID),
    (429, openai(_INVALID), RateLimitError, _INVALID),
    (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key: x"}, AuthenticationError, None),
    (400, openai("too_many_prompt_tokens"), ContextTooLongError, "too_many_prompt_tokens"),
    (404, openai("DeploymentNotFound", ""), ModelNotFoundError, "DeploymentNotFound"),
    (503, b"<html>busy</html>", OverloadedError, None),
    (500, b"", ProviderError, None),
    (502, b"[]", ProviderError, None),
    (400, b"\xff\xfe", InvalidRequestError, None),
    (503, b"null", OverloadedError, None),
    (503, b'"text"', OverloadedError, None),
    (400, b"[" * 100_000, InvalidRequestError, None),
    (500, {"error": {"message": {"deep": 1}, "details": {}}}, ProviderError, None),
]


@pytest.mark.parametrize(("status", "body", "kind", "code"), BODIES)
def test_every_shape_of_an_error_body(status: int, body: Any, kind: type[ProviderError], code: str | None) -> None:
    error = refused(status, body, {"x-request-id": "req_1"})
    assert type(error) is kind
    assert (error.status, error.provider, error.model, error.request_id) == (status, "p", "m-1", "req_1")
    if code is not None:
        assert error.code == code


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"error": {"message": "Bad", "metadata": {"raw": "worse"}, "failed_generation": "{x"}},
            "Bad: worse: the model",
        ),
        ({"detail": [{"loc": ["body"], "msg": "extra"}]}, '"msg":"extra"'),
        ({"detail": "no such route"}, "no such route"),
        ({"error": "too busy"}, "too busy"),
        ({"message": "wrong"}, "wrong"),
        (b"<html>busy</html>", "<html>busy"),
    ],
)
def test_the_message_contains_the_text_of_the_server(body: Any, said: str) -> None:
    assert said in str(refused(400, body))


@pytest.mark.parametrize("header", ["request-id", "x-request-id", "apim-request-id", "x-amzn-requestid"])
def test_request_ids(header: str) -> None:
    assert refused(500, b"", {header: "r"}).request_id == "r"
    assert refused(400, {"message": "x", "type": "y", "request_id": "abc"}).request_id == "abc"


def test_a_wrong_key_at_google_is_an_authentication_error() -> None:
    """Google calls it an invalid argument and puts the reason into the details."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [info]}}
    assert isinstance(refused(400, body), AuthenticationError)


@pytest.mark.parametrize(
    ("delay", "seconds"), [("23s", 23.0), ("0.847655010s", 0.84765501), ("soon", None), (5, None), (None, None)]
)
def test_retry_after_of_google(delay: Any, seconds: float | None) -> None:
    details = [{"violations": []}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
    error = refused(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})
    assert isinstance(error, RateLimitError)
    assert error.retry_after == seconds
