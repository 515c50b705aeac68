"""Whether to try again and when: a pure function of what happened and of what the server says about its limits.

The caller brings the time and a random number, and waits. One budget covers everything that tries again: the attempts
and the seconds of a call. After the first event has reached the caller nothing is tried again: half an answer followed
by another one is worse than an error.
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

# What another attempt will not cure: failures on the way, a limiter's own word, and those of an account.
_HOPELESS: Final = frozenset({"certificate", "proxy_auth", "pool_timeout", "limiter"}) | frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
)

_KINDS: Final = (ConnectionFailedError, RequestTimeoutError, RateLimitError, OverloadedError)


class RetryPolicy(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard to try."""

    max_attempts: Positive = 3
    """Attempts in all, the first one included; 1 means never again."""
    total_seconds: NotNegative | None = None
    """No attempt starts later than this after the first."""
    first_wait: NotNegative = 0.5
    """Seconds before the second attempt, where the server does not say; each further wait is twice as long."""
    longest_wait: NotNegative = 8.0
    """The most that such waits grow to."""
    longest_advice: NotNegative = 60.0
    """If the server asks for more than this, give up at once: the caller knows better what to do with so much time."""
    jitter: NotNegative = 0.25
    """How much a wait is shortened by chance, as a share, so that many clients do not come back all at once."""


class Retry(Struct, frozen=True):
    """Try again."""

    after: float
    """… when so many seconds have passed."""
    why: str


class GiveUp(Struct, frozen=True):
    """Do not."""

    why: str


Decision: TypeAlias = Retry | GiveUp


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt, for the ledger of a result or an error."""

    number: int
    """From 1; 0 for a model of a chain that was passed over without an attempt."""
    outcome: str
    """`ok`, or why it failed, in a few words."""
    model: str = ""
    """As in `provider:model`: in a chain, an attempt can be another model's."""
    waited: float = 0.0
    """Seconds waited before it."""
    queued: float = 0.0
    """Seconds in the line of the limiter before it."""
    duration: float = 0.0
    first_token: float | None = None
    """Seconds until something of the answer came; of a streamed reply only."""
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
    """Whether and when to try again after `attempts` attempts, the last of which failed like this.

    `headers` are those of the reply, names in lower case; `elapsed` counts from the first attempt; `delivered` says
    whether an event of the reply has reached the caller; `random` is a number from 0 up to 1; `now` is the Unix time,
    needed for advice that names a moment.
    """
    why, worthwhile = _judge(error, headers)
    if delivered:
        return GiveUp(f"{why}; a part of the answer was already delivered")
    if not worthwhile:
        return GiveUp(f"{why}; another attempt would not help")
    if attempts > 1 and isinstance(error, RequestTimeoutError) and error.code == "read_timeout":
        return GiveUp(f"{why}; a call that nobody answers in time is tried again only once")
    if attempts >= policy.max_attempts:
        return GiveUp(f"{why}; {attempts} of {policy.max_attempts} attempts made")
    advice = _advice(error, headers, now)
    if advice is not None and advice > policy.longest_advice:
        return GiveUp(f"{why}; the server asks to wait {advice:g} s, more than {policy.longest_advice:g} s")
    # The exponent is capped: nobody waits for 2 ** 10000 to be computed.
    backoff = min(policy.longest_wait, policy.first_wait * 2.0 ** min(attempts - 1, 64))
    after = max(0.0, backoff * (1.0 - policy.jitter * random)) if advice is None else advice
    if policy.total_seconds is not None and elapsed + after > policy.total_seconds:
        return GiveUp(f"{why}; the next attempt would begin after {policy.total_seconds:g} s")
    return Retry(after, why)


def _judge(error: ProviderError, headers: Mapping[str, str]) -> tuple[str, bool]:
    """What happened, in a few words, and whether another attempt makes sense."""
    status, code = error.status, error.code
    why = f"status {status}" if status is not None else code or type(error).__name__
    said = headers.get("x-should-retry")
    if said in ("true", "false"):
        return why, said == "true"
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
        # OpenAI and its likes do not always send Retry-After, but say when the limit that was hit is free again.
        limits = rate_limits_of(headers, now)
        advice = limits.wait if limits else None
    return advice


def retry_after_of(headers: Mapping[str, str], now: float) -> float | None:
    """The wait in seconds that `retry-after-ms` or `retry-after` asks for (a number or a date); None without."""
    milliseconds = seconds_of(headers.get("retry-after-ms", ""), now)
    if milliseconds is not None:
        return milliseconds / 1000
    return seconds_of(headers.get("retry-after", ""), now)


# --- what a server says about its limits -----------------------------------------------------------------------------


class RateLimit(Struct, frozen=True, kw_only=True):
    """One limit. None means that the provider did not say."""

    limit: int | None = None
    """How much is allowed in the provider's period."""
    remaining: int | None = None
    reset: float | None = None
    """Seconds from now until the limit is whole again."""


class RateLimits(Struct, frozen=True, kw_only=True):
    """The limits that a reply reported. None means that the provider has no such limit, or did not say."""

    requests: RateLimit | None = None
    tokens: RateLimit | None = None
    input_tokens: RateLimit | None = None
    output_tokens: RateLimit | None = None

    @property
    def wait(self) -> float | None:
        """Seconds until everything that is used up is available again; None if nothing is, or nobody said when."""
        limits = (self.requests, self.tokens, self.input_tokens, self.output_tokens)
        waits = [each.reset for each in limits if each and each.remaining == 0 and each.reset is not None]
        return max(waits, default=None)


_DURATION: Final = (
    r"(?=[0-9.])(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+(?:\.[0-9]*)?)s)?(?:([0-9]+(?:\.[0-9]*)?)ms)?"
)
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_EPOCH: Final = 1_000_000_000
"""A plain number above this is a moment (in seconds, or milliseconds if it is yet larger), below it a duration."""


def seconds_of(text: str, now: float) -> float | None:
    """Seconds from now, from any form that servers use; None for anything else.

    These are `6m0s`, `20ms`, `1.5`, a Unix time in seconds or milliseconds, an ISO 8601 moment and a date of HTTP.
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
        from email.utils import parsedate_to_datetime  # takes long to load, and is hardly ever needed

        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):  # what a stranger wrote may be anything
            return None
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)  # dates of HTTP are in GMT, also where they do not say so
    return None if moment.tzinfo is None else max(0.0, moment.timestamp() - now)


# Which of our limits a form of names is for. {} stands for "limit", "remaining" or "reset".
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
    """The limits in the headers of a reply (names in lower case); None if there are none. `now` is the Unix time."""
    if "ratelimit" not in "\n".join(headers):
        return None
    found: dict[str, RateLimit] = {}
    for kind, form in _NAMES:
        limit, remaining, reset = (headers.get(form.format(field), "") for field in RateLimit.__struct_fields__)
        read = RateLimit(limit=_number(limit), remaining=_number(remaining), reset=seconds_of(reset, now))
        if kind not in found and read != RateLimit():
            found[kind] = read
    return RateLimits(**found) if found else None
