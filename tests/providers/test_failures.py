"""From a provider's refusal to a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure
from dragoman.providers.profile import Profile

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
def test_the_kind_of_error(status: int | None, code: str | None, text: str, kind: type[ProviderError]) -> None:
    error = failure(CALL, status, code, text, {})
    assert type(error) is kind
    assert (error.provider, error.model, error.status, error.code) == ("p", "m-1", status, code)


def test_the_message_says_where_and_what() -> None:
    assert failure(CALL, 400, None, "  Two\nlines.  ", {}).message == "p:m-1 refused the request (400): Two lines."
    assert failure(CALL, None, None, "", {}).message == "p:m-1 refused the request: no reason was given."
    assert len(failure(CALL, 500, None, "x" * 10_000, {}).message) < 1_100


def test_the_request_id_is_found() -> None:
    assert failure(CALL, 500, None, "", {}, "from-body").request_id == "from-body"
    assert failure(CALL, 500, None, "", {"request-id": "a"}).request_id == "a"
    assert failure(CALL, 500, None, "", {"x-request-id": "b"}).request_id == "b"
    assert failure(CALL, 500, None, "", {}).request_id is None


@given(status=st.none() | st.integers(100, 599), code=st.none() | st.text(max_size=10), text=st.text(max_size=30))
def test_whatever_is_said_becomes_an_error(status: int | None, code: str | None, text: str) -> None:
    error = failure(CALL, status, code, text, {})
    assert isinstance(error, ProviderError)
    assert "\n" not in error.message
