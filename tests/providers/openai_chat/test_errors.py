"""Refusals: each shape of an error, outside of a stream, in a body and in the middle of a stream."""

from __future__ import annotations

import pytest

from dragoman.conversation import StopReason
from dragoman.errors import (
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
)
from tests.providers.openai_chat.wire import USAGE, chunk, event, fails, stream, whole


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
    message, found = fails(event(chunk({"content": "a"})) + event(chunk({"content": "b"})) + odd)
    assert type(found) is expected
    assert message.text == "ab"
    assert message.stop_reason is StopReason.INTERRUPTED


def test_usage_that_comes_with_an_error_is_told() -> None:
    message, _ = fails(stream(chunk({"content": "a"}), chunk({}, error={"message": "no"}, usage=USAGE)))
    assert message.usage is not None


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
