"""What a provider says about its rate limits, as one value.

Owns: the names and forms of the headers, as rows of a table.
Must not know: which provider a reply came from; the headers tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct


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


# --- forms of a moment -----------------------------------------------------------------------------------------------

_DURATION: Final = re.compile(
    r"(?=[0-9.])(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+(?:\.[0-9]*)?)s)?(?:([0-9]+(?:\.[0-9]*)?)ms)?"
).fullmatch
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?").fullmatch
_UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_EPOCH: Final = 1_000_000_000
"""A plain number above this is a moment (in seconds, or milliseconds if it is yet larger), below it a duration."""


def seconds_of(text: str, now: float) -> float | None:
    """Seconds from now, from any form that servers use; None for anything else.

    These are `6m0s`, `20ms`, `1.5`, a Unix time in seconds or milliseconds, an ISO 8601 moment and a date of HTTP.
    """
    text = text.strip()
    if _NUMBER(text):
        number = float(text)
        if number < _EPOCH:
            return number
        return max(0.0, (number / 1000 if number >= _EPOCH * 1000 else number) - now)
    duration = _DURATION(text)
    if duration is not None:
        return sum(float(part) * unit for part, unit in zip(duration.groups(), _UNITS, strict=True) if part)
    return _until(text, now)


def _until(text: str, now: float) -> float | None:
    """Seconds until a moment of ISO 8601 or a date of HTTP."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):  # what a stranger wrote may be anything
            return None
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)  # dates of HTTP are in GMT, also where they do not say so
    return None if moment.tzinfo is None else max(0.0, moment.timestamp() - now)


# --- names of the headers --------------------------------------------------------------------------------------------

_FIELDS: Final = ("limit", "remaining", "reset")

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


def _number(text: str, _now: float) -> int | None:
    text = text.strip()
    return max(0, int(float(text))) if _WHOLE(text) else None


_READERS: Final[dict[str, Callable[[str, float], float | None]]] = {
    "limit": _number,
    "remaining": _number,
    "reset": seconds_of,
}


def rate_limits_of(headers: Mapping[str, str], now: float) -> RateLimits | None:
    """The limits in the headers of a reply (names in lower case); None if there are none. `now` is the Unix time."""
    # Nearly every header of nearly every reply is about something else.
    if "ratelimit" not in "\n".join(headers):
        return None
    found: dict[str, RateLimit] = {}
    for kind, form in _NAMES:
        if kind in found:
            continue
        fields = {field: headers[name] for field in _FIELDS if (name := form.format(field)) in headers}
        values = {field: _READERS[field](text, now) for field, text in fields.items()}
        if any(value is not None for value in values.values()):
            limit, remaining = values.get("limit"), values.get("remaining")
            found[kind] = RateLimit(
                limit=None if limit is None else int(limit),
                remaining=None if remaining is None else int(remaining),
                reset=values.get("reset"),
            )
    return RateLimits(**found) if found else None
