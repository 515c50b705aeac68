"""Whether and when to retry, as a pure function of the error, the response headers and the retry policy.

The caller supplies the time and a random number, and does the waiting. Nothing is retried once an event has reached the
caller: half an answer followed by another one is worse than an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman._checks import CheckedMeta, NotNegative, Positive
from dragoman.errors import (
    ConnectionFailedError,
    ContextTooLongError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    RequestTimeoutError,
)

_STATUSES: Final = frozenset({408, 409, 429, *range(500, 600)})

# Codes that a retry cannot fix: network setup, our own limiter, and the account.
_HOPELESS: Final = frozenset({"certificate", "certificate_form", "proxy_auth", "pool_timeout", "limiter"}) | frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
)

_KINDS: Final = (ConnectionFailedError, RequestTimeoutError, RateLimitError, OverloadedError)


class RetryPolicy(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how long to retry."""

    max_attempts: Positive = 3
    """Attempts in total, including the first; 1 means no retry."""
    total_seconds: NotNegative | None = None
    """No attempt starts later than this after the first."""
    first_wait: NotNegative = 0.5
    """Seconds before the first retry, unless the server says; each further wait is twice as long."""
    longest_wait: NotNegative = 8.0
    """The maximum of these waits."""
    longest_advice: NotNegative = 60.0
    """If the server asks for a longer wait than this, give up at once."""
    jitter: NotNegative = 0.25
    """The share by which a wait is randomly shortened, so that many clients do not retry at the same moment."""


class Retry(Struct, frozen=True):
    """Retry."""

    after: float
    """Seconds to wait before."""
    why: str


class GiveUp(Struct, frozen=True):
    """Do not retry."""

    why: str


Decision: TypeAlias = Retry | GiveUp


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt, as listed in a reply or an error."""

    number: int
    """From 1; 0 for a model of a fallback chain that was skipped."""
    outcome: str
    """`ok`, or why it failed, in a few words."""
    model: str = ""
    """As in `provider:model`; differs within a fallback chain."""
    waited: float = 0.0
    """Seconds waited before it."""
    queued: float = 0.0
    """Seconds in the limiter's queue before it."""
    duration: float = 0.0
    first_token: float | None = None
    """Seconds until the first content; for streamed replies only."""
    status: int | None = None
    request_id: str | None = None


def decide(
    error: ProviderError,
    headers: Mapping[str, str],
    policy: RetryPolicy,
    attempts: int,
    *,
    elapsed: float,
    delivered: bool,
    random: float,
    now: float,
) -> Decision:
    """Whether and when to retry after `attempts` attempts, the last of which failed with this error.

    `headers` are those of the response, names in lower case; `elapsed` is the time since the first attempt;
    `delivered`: whether an event of the reply has reached the caller; `random` is in [0, 1); `now` is the Unix time,
    for advice that is a date.
    """
    why, worthwhile = _judge(error, headers)
    if delivered:
        return GiveUp(f"{why}; a part of the answer was already delivered")
    if not worthwhile:
        return GiveUp(f"{why}; another attempt would not help")
    if attempts > 1 and isinstance(error, RequestTimeoutError) and error.code == "read_timeout":
        return GiveUp(f"{why}; a call that times out is retried only once")
    if attempts >= policy.max_attempts:
        return GiveUp(f"{why}; {attempts} of {policy.max_attempts} attempts made")
    advice = _advice(error, headers, now)
    if advice is not None and advice > policy.longest_advice:
        return GiveUp(f"{why}; the server asks to wait {advice:g} s, more than {policy.longest_advice:g} s")
    # The exponent is capped: 2.0 ** 10000 overflows.
    backoff = min(policy.longest_wait, policy.first_wait * 2.0 ** min(attempts - 1, 64))
    after = max(0.0, backoff * (1.0 - policy.jitter * random)) if advice is None else advice
    if policy.total_seconds is not None and elapsed + after > policy.total_seconds:
        return GiveUp(f"{why}; the next attempt would start after {policy.total_seconds:g} s")
    return Retry(after, why)


def _judge(error: ProviderError, headers: Mapping[str, str]) -> tuple[str, bool]:
    """What happened, in a few words, and whether a retry makes sense."""
    status, code = error.status, error.code
    why = f"status {status}" if status is not None else code or type(error).__name__
    advice = headers.get("x-should-retry")
    if advice in ("true", "false"):
        return why, advice == "true"
    if code in _HOPELESS or isinstance(error, ContextTooLongError):  # whatever its status
        return f"{why} ({code})" if status is not None else why, False
    if status is not None and status >= 300:
        return why, status in _STATUSES
    return why, isinstance(error, _KINDS)


def _advice(error: ProviderError, headers: Mapping[str, str], now: float) -> float | None:
    if error.retry_after is not None:
        return max(0.0, error.retry_after)
    advice = retry_after_of(headers, now)
    if advice is None and error.status == 429:
        # OpenAI and compatible servers do not always send Retry-After, but say when the limit resets.
        limits = rate_limits_of(headers, now)
        advice = limits.wait if limits else None
    return advice


def retry_after_of(headers: Mapping[str, str], now: float) -> float | None:
    """The wait in seconds that `retry-after-ms` or `retry-after` asks for (a number or a date); None without."""
    milliseconds = seconds_of(headers.get("retry-after-ms", ""), now)
    if milliseconds is not None:
        return milliseconds / 1000
    return seconds_of(headers.get("retry-after", ""), now)


# --- rate limits ------------------------------------------------------------------------------------------------------


class RateLimit(Struct, frozen=True, kw_only=True):
    """One limit; None: not reported."""

    limit: int | None = None
    """How much the provider allows per period."""
    remaining: int | None = None
    reset: float | None = None
    """Seconds until the limit is fully restored."""


class RateLimits(Struct, frozen=True, kw_only=True):
    """The limits that a response reported; None: not reported."""

    requests: RateLimit | None = None
    tokens: RateLimit | None = None
    input_tokens: RateLimit | None = None
    output_tokens: RateLimit | None = None

    @property
    def wait(self) -> float | None:
        """Seconds until every exhausted limit is restored; None if none is, or if unknown."""
        limits = (self.requests, self.tokens, self.input_tokens, self.output_tokens)
        waits = [each.reset for each in limits if each and each.remaining == 0 and each.reset is not None]
        return max(waits, default=None)


_DURATION: Final = (
    r"(?=[0-9.])(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+(?:\.[0-9]*)?)s)?(?:([0-9]+(?:\.[0-9]*)?)ms)?"
)
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_EPOCH: Final = 1_000_000_000
"""A number above this is a Unix time (in seconds, or milliseconds if much larger), below it a duration."""


def seconds_of(text: str, now: float) -> float | None:
    """Seconds from now, from any format that servers use; None for anything else.

    These are `6m0s`, `20ms`, `1.5`, a Unix time in seconds or milliseconds, an ISO 8601 time and an HTTP date.
    """
    text = text.strip()
    if not text:
        return None
    if re.fullmatch(_NUMBER, text):
        number = float(text)
        if number < _EPOCH:
            return number
        return max(0.0, (number / 1000 if number >= _EPOCH * 1000 else number) - now)
    duration = re.fullmatch(_DURATION, text)
    if duration is not None:
        return sum(float(part) * unit for part, unit in zip(duration.groups(), _UNITS, strict=True) if part)
    return _until(text, now)


def _until(text: str, now: float) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        from email.utils import parsedate_to_datetime  # slow to import, and rarely needed

        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):  # the header may contain anything
            return None
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)  # HTTP dates are in GMT even without saying so
    return None if moment.tzinfo is None else max(0.0, moment.timestamp() - now)


# Header names by limit; {} is "limit", "remaining" or "reset".
_NAMES: Final[tuple[tuple[str, str], ...]] = (
    ("requests", "anthropic-ratelimit-requests-{}"),
    ("tokens", "anthropic-ratelimit-tokens-{}"),
    ("input_tokens", "anthropic-ratelimit-input-tokens-{}"),
    ("output_tokens", "anthropic-ratelimit-output-tokens-{}"),
    ("requests", "x-ratelimit-{}-requests"),  # OpenAI, Azure, Groq, xAI, Together, Fireworks
    ("tokens", "x-ratelimit-{}-tokens"),
    ("input_tokens", "x-ratelimit-{}-tokens-prompt"),  # Fireworks
    ("output_tokens", "x-ratelimit-{}-tokens-generated"),
    ("requests", "x-ratelimit-{}-req-minute"),  # Mistral
    ("tokens", "x-ratelimit-{}-tokens-minute"),
    ("requests", "x-ratelimit-{}"),  # OpenRouter; Together
    ("requests", "ratelimit-{}"),  # a draft of the IETF
)

_WHOLE: Final = re.compile(r"-?[0-9]{1,15}(?:\.0*)?").fullmatch


def _number(text: str) -> int | None:
    return max(0, int(float(text))) if _WHOLE(text.strip()) else None


def rate_limits_of(headers: Mapping[str, str], now: float) -> RateLimits | None:
    """The limits in response headers (names in lower case); None if there are none. `now` is the Unix time."""
    if "ratelimit" not in "\n".join(headers):
        return None
    found: dict[str, RateLimit] = {}
    for kind, form in _NAMES:
        limit, remaining, reset = (headers.get(form.format(field), "") for field in RateLimit.__struct_fields__)
        read = RateLimit(limit=_number(limit), remaining=_number(remaining), reset=seconds_of(reset, now))
        if kind not in found and read != RateLimit():
            found[kind] = read
    return RateLimits(**found) if found else None
