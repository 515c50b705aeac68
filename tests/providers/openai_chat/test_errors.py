"""Refusals: each shape of an error, outside of a stream, in a body and in the middle of a stream."""

from __future__ import annotations

import json

import pytest

from dragoman.conversation import StopReason, UsageReported, fold
from dragoman.errors import (
    AuthenticationError,
    ContextTooLongError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
)
from dragoman.providers.openai_chat import CODEC
from tests.providers.openai_chat.wire import USAGE, call_to, chunk, event, fails, stream, whole


def error(status: int, body: object, headers: dict[str, str] | None = None) -> ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CODEC.error(status, headers or {}, data, call_to("openai", "gpt-4o"))


_INVALID = "invalid_request_error"


@pytest.mark.parametrize(
    ("status", "body", "expected", "code"),
    [
        (401, {"error": {"message": "no", "type": _INVALID, "code": "invalid_api_key"}}, AuthenticationError, None),
        (404, {"error": {"message": "no", "code": "model_not_found"}}, ModelNotFoundError, None),
        (400, {"error": {"message": "no", "code": "context_length_exceeded"}}, ContextTooLongError, None),
        (429, {"error": {"message": "no", "code": "insufficient_quota"}}, RateLimitError, None),
        (429, {"error": {"code": 429, "message": "no", "metadata": {"raw": "busy"}}}, RateLimitError, ""),
        (400, {"error": "too long: context length 8192", "code": "invalid"}, ContextTooLongError, "invalid"),
        (400, {"object": "error", "message": "no", "type": _INVALID, "code": "3051"}, InvalidRequestError, "3051"),
        (422, {"detail": [{"loc": ["body"], "msg": "extra"}]}, InvalidRequestError, ""),
        (403, {"message": "no", "type": "forbidden", "code": "x"}, PermissionDeniedError, "x"),
        (400, [{"error": {"code": 400, "message": "no", "status": "INVALID"}}], InvalidRequestError, "INVALID"),
        (503, b"<html>busy</html>", OverloadedError, ""),
        (500, b"", ProviderError, ""),
        (502, b"[]", ProviderError, ""),
        (400, b"\xff\xfe", InvalidRequestError, ""),
        (500, {"error": {"message": {"deep": 1}}}, ProviderError, ""),
    ],
)
def test_every_shape_of_an_error(status: int, body: object, expected: type[ProviderError], code: str | None) -> None:
    found = error(status, body)
    assert type(found) is expected
    assert (found.status, found.provider, found.model) == (status, "openai", "gpt-4o")
    assert found.code == (code or None) if code is not None else found.code in str(body)


def test_an_error_says_what_the_server_said() -> None:
    found = error(400, {"error": {"message": "Bad", "metadata": {"raw": "worse"}, "failed_generation": "{x"}})
    assert "Bad: worse: the model wrote: {x" in str(found)
    assert "extra" in str(error(422, {"detail": [{"loc": ["body"], "msg": "extra"}]}))
    assert "<html>busy" in str(error(503, b"<html>busy</html>"))
    assert error(400, {"error": {"message": "x"}}, {"x-request-id": "req_1"}).request_id == "req_1"
    assert error(400, {"message": "x", "type": "y", "request_id": "abc"}).request_id == "abc"


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (event({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}), RateLimitError),
        (event({"error": {"message": "slow down", "code": 429}}), RateLimitError),
        (event({"error": {"message": "gone", "type": "server_error", "code": "x1"}}), ProviderError),
        (event({"error": {"message": "no", "type": "overloaded_error", "code": "x1"}}), OverloadedError),
        (event({"error": "broken"}), ProviderError),
        (event({"object": "error", "message": "no", "code": 503}), OverloadedError),
        (event({"message": "no", "type": "invalid_request_error"}), InvalidRequestError),
        (b"event: error\n" + event({"message": "no", "status_code": 400}), InvalidRequestError),
        (b"event: error\ndata: broken\n\n", ProtocolError),
        (event(chunk({"content": "x"}, "error", error={"code": 502, "message": "gone"})), ProviderError),
        (event(chunk(choices=[{"index": 0, "delta": {}, "error": {"code": 503, "message": "busy"}}])), OverloadedError),
        (event(chunk({}, "error")), ProviderError),
        (event(chunk({}, "insufficient_system_resource")), OverloadedError),
        (event(chunk({}, "network_error")), ProviderError),
        (b"data: {broken\n\n", ProtocolError),
        (b"data: [1]\n\n", ProtocolError),
    ],
)
def test_an_error_in_a_stream_keeps_what_came_before(odd: bytes, expected: type[ProviderError]) -> None:
    events, found = fails(event(chunk({"content": "a"})) + event(chunk({"content": "b"})) + odd)
    assert type(found) is expected
    message = fold(events)
    assert message.text == "ab"
    assert message.stop_reason is StopReason.INTERRUPTED


def test_usage_that_comes_with_an_error_is_told() -> None:
    events, _ = fails(stream(chunk({"content": "a"}), chunk({}, error={"message": "no"}, usage=USAGE)))
    assert any(isinstance(found, UsageReported) for found in events)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}', RateLimitError),
        (b'[{"error":{"message":"no","code":404,"status":"NOT_FOUND"}}]', InvalidRequestError),
        (b'{"choices":[]}', ProtocolError),
        (b'{"choices":null}', ProtocolError),
        (b"{}", ProtocolError),
        (b"[]", ProtocolError),
        (b'{"choices":[{"message":', ProtocolError),
        (whole({"content": "a"})[:-1], ProtocolError),
        (whole({"content": "a"}, "error"), ProviderError),
    ],
)
def test_an_error_in_place_of_a_whole_reply(body: bytes, expected: type[ProviderError]) -> None:
    assert type(fails(body, stream=False)[1]) is expected
    assert type(fails(body, stream=True)[1]) is expected
