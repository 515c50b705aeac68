from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.transport.rate_limits import RateLimit, RateLimits, rate_limits_of, seconds_of

NOW = 1_750_000_000.0  # Sun, 15 Jun 2025 15:06:40 GMT

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


def test_openai_and_its_likes() -> None:
    assert rate_limits_of(OPENAI, NOW) == RateLimits(
        requests=RateLimit(limit=10_000, remaining=9_999, reset=8.64),
        tokens=RateLimit(limit=200_000, remaining=199_980, reset=0.006),
    )


def test_anthropic() -> None:
    limits = rate_limits_of(ANTHROPIC, NOW)
    assert limits == RateLimits(
        requests=RateLimit(limit=4_000, remaining=3_999, reset=15.0),
        tokens=RateLimit(limit=480_000),
        input_tokens=RateLimit(limit=400_000, remaining=0, reset=60.0),
        output_tokens=RateLimit(limit=80_000, remaining=80_000),
    )
    assert limits is not None
    assert limits.wait == 60.0


def test_others() -> None:
    mistral = {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-tokens-minute": "499000"}
    assert rate_limits_of(mistral, NOW) == RateLimits(requests=RateLimit(limit=60), tokens=RateLimit(remaining=499_000))
    openrouter = {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1750000030000"}
    limits = rate_limits_of(openrouter, NOW)
    assert limits == RateLimits(requests=RateLimit(limit=20, remaining=0, reset=30.0))
    assert rate_limits_of({"ratelimit-remaining": "5", "ratelimit-reset": "12"}, NOW) == RateLimits(
        requests=RateLimit(remaining=5, reset=12.0)
    )


def test_none() -> None:
    assert rate_limits_of({}, NOW) is None
    assert rate_limits_of({"content-type": "application/json", "x-ratelimit-policy": "x"}, NOW) is None
    assert rate_limits_of({"x-ratelimit-limit-requests": "unlimited"}, NOW) is None


def test_nothing_to_wait_for() -> None:
    limits = rate_limits_of(OPENAI, NOW)
    assert limits is not None
    assert limits.wait is None
    assert RateLimits(requests=RateLimit(remaining=0)).wait is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("2d", 172_800.0),
        ("20ms", 0.02),
        ("1s500ms", 1.5),
        ("0", 0.0),
        ("0.25", 0.25),
        ("1750000060", 60.0),
        ("1750000060500", 60.5),
        ("1", 1.0),
        ("2025-06-15T15:06:41Z", 1.0),
        ("2025-06-15T17:06:41.5+02:00", 1.5),
        ("2025-06-15T15:06:00Z", 0.0),
        ("Sun, 15 Jun 2025 15:06:41 GMT", 1.0),
        ("", None),
        ("s", None),
        ("ms", None),
        ("1 s", None),
        ("1s2m", None),
        ("2025-06-15T15:06:41", None),
        ("tomorrow", None),
        ("1" * 400, None),
        ("Sun, 15 Foo 2025 15:06:41 GMT", None),
    ],
)
def test_forms_of_a_moment(text: str, seconds: float | None) -> None:
    assert seconds_of(text, NOW) == (None if seconds is None else pytest.approx(seconds))


@given(st.dictionaries(st.sampled_from([*OPENAI, *ANTHROPIC, "x-ratelimit-reset"]), st.text(max_size=20)))
def test_any_headers(headers: dict[str, str]) -> None:
    limits = rate_limits_of(headers, NOW)
    assert limits is None or limits.wait is None or limits.wait >= 0
