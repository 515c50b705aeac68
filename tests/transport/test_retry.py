from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dragoman import errors
from dragoman.errors import ConnectionFailedError, DragomanError, ProviderError, RequestTimeoutError
from dragoman.transport import (
    GiveUp,
    HttpRequest,
    RateLimits,
    RetryPolicy,
    Timeouts,
    decide,
    rate_limits_of,
    retry_after_of,
)
from dragoman.transport.errors import error_for
from dragoman.transport.retry import Decision, RateLimit, Retry, seconds_of

NOW = 1_750_000_000.0  # Sun, 15 Jun 2025 15:06:40 GMT
POLICY = RetryPolicy()


def decided(
    attempts: int = 1,
    policy: RetryPolicy = POLICY,
    random: float = 0.0,
    *,
    status: int | None = None,
    error: ProviderError | None = None,
    headers: Mapping[str, str] | None = None,
    elapsed: float = 0.0,
    delivered: bool = False,
) -> Decision:
    failed = error or ProviderError("…", status=status)
    options = {"elapsed": elapsed, "delivered": delivered, "random": random, "now": NOW}
    return decide(failed, headers or {}, policy, attempts, **options)  # type: ignore[arg-type]


def failed(code: str) -> DragomanError:
    return error_for(code, HttpRequest(url="https://h/"))


@pytest.mark.parametrize(
    ("attempt", "why", "again"),
    [
        *(({"status": status}, f"status {status}", True) for status in (408, 409, 429, 500, 503, 529)),
        *(({"status": status}, f"status {status}", False) for status in (302, 400, 401, 404, 413, 422, 600)),
        *(
            ({"error": failed(code)}, code, True)
            for code in ("refused", "unknown_host", "reset", "closed_early", "cut_off", "proxy", "tls")
        ),
        *(
            ({"error": failed(code)}, code, False)
            for code in ("certificate", "proxy_auth", "pool_timeout", "malformed")
        ),
        ({"error": errors.OverloadedError("…")}, "OverloadedError", True),
        ({"error": RequestTimeoutError("…", code="read_timeout")}, "read_timeout", True),
        ({"error": errors.RateLimitError("…", status=429)}, "status 429", True),
        (
            {"error": errors.RateLimitError("…", status=429, code="insufficient_quota")},
            "status 429 (insufficient_quota)",
            False,
        ),
        ({"error": errors.ProviderError("…", status=500)}, "status 500", True),
        ({"error": errors.ProviderError("…")}, "ProviderError", False),
        ({"error": errors.ContextTooLongError("…")}, "ContextTooLongError", False),
        # The server has the last word.
        ({"status": 400, "headers": {"x-should-retry": "true"}}, "status 400", True),
        ({"status": 503, "headers": {"x-should-retry": "false"}}, "status 503", False),
        ({"status": 503, "headers": {"x-should-retry": "?"}}, "status 503", True),
    ],
)
def test_which_errors_are_retried(attempt: dict[str, object], why: str, again: bool) -> None:
    assert decided(**attempt) == (Retry(0.5, why) if again else GiveUp(f"{why}; another attempt would not help"))  # type: ignore[arg-type]
    delivered = decided(delivered=True, **attempt)  # type: ignore[arg-type]
    assert delivered == GiveUp(f"{why}; a part of the answer was already delivered")


class TestWaiting:
    def test_waits_double_up_to_a_limit(self) -> None:
        policy = RetryPolicy(max_attempts=100)
        waits = [decided(attempts, policy, status=500) for attempts in range(1, 8)]
        assert [each.after for each in waits if isinstance(each, Retry)] == [0.5, 1, 2, 4, 8, 8, 8]
        assert decided(10_000, RetryPolicy(max_attempts=20_000), status=500) == Retry(8.0, "status 500")

    def test_the_wait_that_the_server_asks_for(self) -> None:
        for headers in (
            {"retry-after": "7"},
            {"retry-after-ms": "7000", "retry-after": "20"},
            {"retry-after-ms": "soon", "retry-after": "7"},
            {"retry-after": "Sun, 15 Jun 2025 15:06:47 GMT"},
        ):
            assert retry_after_of(headers, NOW) == 7.0
            assert decided(status=429, headers=headers, random=0.9) == Retry(7.0, "status 429")
        for text in ("", "soon", "-1", "nan", "inf", "1e400", "Sun, 99 Jun 2025 15:06:47 GMT", "é", "0x7"):
            assert retry_after_of({"retry-after": text}, NOW) is None  # what cannot be read is passed over
            assert decided(status=503, headers={"retry-after": text}) == Retry(0.5, "status 503")
        decision = decided(status=429, headers={"retry-after": "3600"})  # too long: that is left to the caller
        assert decision == GiveUp("status 429; the server asks to wait 3600 s, more than 60 s")

    def test_limits_that_are_used_up_say_when_they_are_whole_again(self) -> None:
        headers = {
            "x-ratelimit-remaining-requests": "10",
            "x-ratelimit-reset-requests": "50s",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "6s",
        }
        assert decided(status=429, headers=headers) == Retry(6.0, "status 429")
        assert decided(status=503, headers=headers) == Retry(0.5, "status 503")
        assert decided(status=429, headers=headers | {"retry-after": "2"}) == Retry(2.0, "status 429")


def test_the_attempt_budget() -> None:
    assert isinstance(decided(2, status=500), Retry)
    assert decided(3, status=500) == GiveUp("status 500; 3 of 3 attempts made")
    assert isinstance(decided(1, RetryPolicy(max_attempts=1), status=500), GiveUp)
    policy = RetryPolicy(total_seconds=10)
    assert isinstance(decided(1, policy, status=500, elapsed=9.5), Retry)
    assert isinstance(decided(1, policy, status=500, elapsed=9.6), GiveUp)
    assert isinstance(decided(1, policy, status=429, elapsed=1, headers={"retry-after": "10"}), GiveUp)


def test_a_timed_out_call_is_retried_once() -> None:
    policy, unanswered = RetryPolicy(max_attempts=9), RequestTimeoutError("…", code="read_timeout")
    assert isinstance(decided(1, policy, error=unanswered), Retry)
    assert decided(2, policy, error=unanswered) == GiveUp("read_timeout; a call that times out is retried only once")
    assert isinstance(decided(2, error=RequestTimeoutError("…", code="connect_timeout")), Retry)
    assert Timeouts().read == 180.0


headers = st.dictionaries(
    st.sampled_from(
        ["retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"]
    ),
    st.text(max_size=30)
    | st.sampled_from(["0", "1", "59", "61", "true", "false", "1m", "Sun, 15 Jun 2025 15:06:47 GMT"]),
)
failures = st.builds(
    ConnectionFailedError,
    st.just("…"),
    status=st.none() | st.integers(100, 999),
    code=st.none() | st.sampled_from(["reset", "certificate"]),
)
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 10),
    total_seconds=st.none() | st.floats(0, 1000),
    first_wait=st.floats(0, 10),
    longest_wait=st.floats(0, 100),
    longest_advice=st.floats(0, 100),
    jitter=st.floats(0, 1),
)


@given(
    st.fixed_dictionaries({"error": failures, "headers": headers, "delivered": st.booleans()}),
    st.floats(0, 1000),
    policies,
    st.integers(1, 12),
    st.floats(0, 1, exclude_max=True),
)
def test_the_attempt_budget_is_never_exceeded(
    attempt: dict[str, Any], elapsed: float, policy: RetryPolicy, made: int, random: float
) -> None:
    decision = decided(made, policy, random, elapsed=elapsed, **attempt)
    assert decision == decided(made, policy, random, elapsed=elapsed, **attempt)
    assert decision.why
    if isinstance(decision, Retry):
        longest = decided(made, policy, elapsed=elapsed, **attempt)  # chance only ever shortens
        assert not isinstance(longest, Retry) or longest.after * (1 - policy.jitter) <= decision.after <= longest.after
        assert not attempt["delivered"]
        assert made < policy.max_attempts
        assert 0 <= decision.after <= max(policy.longest_wait, policy.longest_advice)
        assert policy.total_seconds is None or elapsed + decision.after <= policy.total_seconds


# --- what a server says about its limits ---

OPENAI = {
    "x-ratelimit-limit-requests": "10000",
    "x-ratelimit-limit-tokens": "200000",
    "x-ratelimit-remaining-requests": "9999",
    "x-ratelimit-remaining-tokens": "199980",
    "x-ratelimit-reset-requests": "8.64s",
    "x-ratelimit-reset-tokens": "6ms",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "4000",
    "anthropic-ratelimit-requests-remaining": "3999",
    "anthropic-ratelimit-requests-reset": "2025-06-15T15:06:55Z",
    "anthropic-ratelimit-input-tokens-limit": "400000",
    "anthropic-ratelimit-input-tokens-remaining": "0",
    "anthropic-ratelimit-input-tokens-reset": "2025-06-15T15:07:40+00:00",
    "anthropic-ratelimit-output-tokens-limit": "80000",
    "anthropic-ratelimit-output-tokens-remaining": "80000",
    "anthropic-ratelimit-tokens-limit": "480000",
}


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (
            OPENAI,
            RateLimits(
                requests=RateLimit(limit=10_000, remaining=9_999, reset=8.64),
                tokens=RateLimit(limit=200_000, remaining=199_980, reset=0.006),
            ),
        ),
        (
            ANTHROPIC,
            RateLimits(
                requests=RateLimit(limit=4_000, remaining=3_999, reset=15.0),
                tokens=RateLimit(limit=480_000),
                input_tokens=RateLimit(limit=400_000, remaining=0, reset=60.0),
                output_tokens=RateLimit(limit=80_000, remaining=80_000),
            ),
        ),
        (
            {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-tokens-minute": "499000"},
            RateLimits(requests=RateLimit(limit=60), tokens=RateLimit(remaining=499_000)),
        ),
        (
            {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1750000030000"},
            RateLimits(requests=RateLimit(limit=20, remaining=0, reset=30.0)),
        ),
        (
            {"ratelimit-remaining": "5", "ratelimit-reset": "12"},
            RateLimits(requests=RateLimit(remaining=5, reset=12.0)),
        ),
        ({}, None),
        ({"content-type": "application/json", "x-ratelimit-policy": "x"}, None),
        ({"x-ratelimit-limit-requests": "unlimited"}, None),
    ],
)
def test_limits(headers: dict[str, str], limits: RateLimits | None) -> None:
    assert rate_limits_of(headers, NOW) == limits
    assert headers is not ANTHROPIC or (limits is not None and limits.wait == 60.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("2d", 172_800.0),
        ("20ms", 0.02),
        ("1s500ms", 1.5),
        ("0.25", 0.25),
        ("1750000060", 60.0),
        ("1750000060500", 60.5),
        ("2025-06-15T15:06:41Z", 1.0),
        ("2025-06-15T17:06:41.5+02:00", 1.5),
        ("2025-06-15T15:06:00Z", 0.0),
        ("Sun, 15 Jun 2025 15:06:41 GMT", 1.0),
        ("", None),
        ("1 s", None),
        ("1s2m", None),
        ("2025-06-15T15:06:41", None),
        ("1" * 400, None),
        ("Sun, 15 Foo 2025 15:06:41 GMT", None),
    ],
)
def test_time_formats(text: str, seconds: float | None) -> None:
    assert seconds_of(text, NOW) == (None if seconds is None else pytest.approx(seconds))


@given(st.dictionaries(st.sampled_from([*OPENAI, *ANTHROPIC, "x-ratelimit-reset", "retry-after"]), st.text(max_size=9)))
def test_any_headers(headers: dict[str, str]) -> None:
    wait = retry_after_of(headers, NOW)
    assert wait is None or 0 <= wait < 1e16
    limits = rate_limits_of(headers, NOW)
    assert limits is None or limits.wait is None or limits.wait >= 0
