"""What must never be written to a tape.

Owns: the signs of a key, and the refusal.
Must not know: what a tape looks like.

A tape is made to be committed and shared, so the scan is suspicious: it would rather refuse a harmless text than let a
key through. Nothing is replaced behind the user's back; what is refused has to be taken out on purpose.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from dragoman.errors import ConfigurationError

__all__ = ["SecretFoundError", "refuse_secrets", "secret_forms"]


class SecretFoundError(ConfigurationError):
    """Something that looks like a key was about to be written to a tape. Nothing was written."""

    next_step = "Take it out of the request, or give it a harmless stand-in with Tape(replace={…})."


# What each is was looked up in the providers' documentation; the text of a refusal names it.
_SIGNS: Final[tuple[tuple[str, str], ...]] = (
    ("an API key (sk-…)", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("a Google API key (AIza…)", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("a Google access token (ya29.…)", r"\bya29\.[A-Za-z0-9_-]{20,}"),
    ("a Groq key (gsk_…)", r"\bgsk_[A-Za-z0-9]{20,}"),
    ("an xAI key (xai-…)", r"\bxai-[A-Za-z0-9]{20,}"),
    ("a Hugging Face token (hf_…)", r"\bhf_[A-Za-z0-9]{20,}"),
    ("a Perplexity key (pplx-…)", r"\bpplx-[A-Za-z0-9]{20,}"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a signed token (JWT)", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("a bearer token", r"(?i:\bbearer)\s+[A-Za-z0-9._~+/-]{16,}"),
    ("a basic login", r"(?i:\bbasic)\s+[A-Za-z0-9+/]{16,}={0,2}(?![A-Za-z0-9+/])"),
    ("a password in an address", r"\b[a-z][a-z0-9+.-]*://[^/\s:@\"']{1,100}:[^/\s@\"']{1,200}@"),
)
_ANY_SIGN: Final = re.compile("|".join(f"(?:{pattern})" for _, pattern in _SIGNS))

# A name that promises a secret, followed by something long and random. Quotes may be escaped: JSON in JSON.
_NAMED: Final = re.compile(
    r"(?i:(?:api|access|secret|private|auth|subscription)[_-]?key|apikey|token|secret|passw(?:or)?d|credentials?|"
    r"authorization)\\*[\"']?\s*[:=]\s*\\*[\"']?([A-Za-z0-9_+/.~-]{20,})"
)
_RANDOM_BITS: Final = 3.2
"""Bits for each character. English words have about 2.5 to 3 here, random base64 of this length about 4."""


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """The forms in which a secret may appear in a text: as it is, in a URL, in JSON, as a part of a basic login."""
    forms: dict[str, None] = {}
    for secret in secrets:
        if len(secret) < 4:  # would be found everywhere
            continue
        forms[secret] = None
        forms[quote(secret, safe="")] = None
        forms[json.dumps(secret)[1:-1]] = None
        # As the second part of "user:password" its base64 depends on what comes before, in three ways.
        for before in range(3):
            packed = base64.b64encode(b" " * before + secret.encode())[4 if before else 0 : -4].decode()
            if len(packed) >= 8:
                forms[packed] = None
    return tuple(forms)


def refuse_secrets(texts: Iterable[tuple[str, str]], forms: tuple[str, ...]) -> None:
    """Raise SecretFoundError if one of the texts, each with the name of its place, holds a key. It is not repeated."""
    for place, text in texts:
        if any(form in text for form in forms):
            raise _refusal("one of the given secrets", place)
        if _ANY_SIGN.search(text):
            sign = next(name for name, pattern in _SIGNS if re.search(pattern, text))
            raise _refusal(sign, place)
        for found in _NAMED.finditer(text):
            if _is_random(found[1]):
                raise _refusal("a long random value behind a name like 'key' or 'token'", place)


def _refusal(what: str, place: str) -> SecretFoundError:
    return SecretFoundError(f"The tape refuses to record {place}: it contains what looks like {what}.")


def _is_random(text: str) -> bool:
    if not (any(map(str.isdigit, text)) and any(map(str.isalpha, text))):
        return False
    shares = [number / len(text) for number in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares) >= _RANDOM_BITS
