"""From a refusal of Google's to a typed error.

A Google error has a word (`status`), a text, and details with a reason and the time to wait, in a body of its own or in
the middle of a stream. Which word means which error stands in failures.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import msgspec

from dragoman.errors import ContentFilteredError, ProviderError
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

# Reasons in google.rpc.ErrorInfo that say more than the word does: a wrong key is an INVALID_ARGUMENT.
_TELLING_REASONS = frozenset(["API_KEY_INVALID"])

_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
"""A google.protobuf.Duration in JSON."""


def read_refusal(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The typed error of a reply whose status is not 2xx."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return failure(call, status, None, body[:2000].decode("utf-8", "replace"), headers)
    if isinstance(value, list):  # a stream that was not asked for as events fails in an array of its own
        value = next(iter(cast("list[object]", value)), None)
    error = _member(value, "error")
    return _read_error(call, status, value if error is None else error, headers)


def read_chunk_error(call: Call, error: object) -> ProviderError:
    """The typed error for the `error` member of a chunk in a stream that began well."""
    number = _member(error, "code")
    status = number if isinstance(number, int) and 400 <= number <= 599 else None
    return _read_error(call, status, error, {})


def read_blocked_prompt(call: Call, feedback: object) -> ProviderError:
    """The error for a prompt that was blocked: there is no reply at all, only `promptFeedback`."""
    reason = _text(feedback, "blockReason") or "BLOCKED_REASON_UNSPECIFIED"
    said = _text(feedback, "blockReasonMessage")
    return ContentFilteredError(
        f"{call.profile.provider}:{call.model} blocked the prompt ({reason}){f': {said}' if said else '.'}",
        provider=call.profile.provider,
        model=call.model,
        code=reason,
    )


def _read_error(call: Call, status: int | None, error: object, headers: Mapping[str, str]) -> ProviderError:
    if isinstance(error, str):
        return failure(call, status, None, error, headers)
    details = _member(error, "details")
    infos = cast("list[object]", details) if isinstance(details, list) else []
    telling = [reason for info in infos if (reason := _text(info, "reason")) in _TELLING_REASONS]
    code = telling[-1] if telling else _text(error, "status")
    typed = failure(call, status, code, _text(error, "message") or _text(error, "detail") or "", headers)
    for info in infos:
        wait = _SECONDS.fullmatch(_text(info, "retryDelay") or "")
        if wait is not None:
            typed.retry_after = float(wait[1])
    return typed


def _member(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _text(value: object, name: str) -> str | None:
    found = _member(value, name)
    return found if isinstance(found, str) else None
