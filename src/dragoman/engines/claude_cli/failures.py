"""What went wrong with the claude program, as typed errors.

Owns: reading a failed result; the errors of a program that does not start, stops, or says nothing.
Must not know: processes; it is told how they ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    ProtocolError,
    ProviderError,
    RequestTimeoutError,
)
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

__all__ = ["broke_off", "crashed", "malformed", "no_session", "not_started", "refused", "silent", "too_old"]

_CODES: Final = {
    "authentication_failed": "authentication_error",
    "billing_error": "billing_error",
    "invalid_request": "invalid_request_error",
    "oauth_org_not_allowed": "permission_error",
    "overloaded": "overloaded_error",
    "rate_limit": "rate_limit_error",
}
"""The program's words for a failure, in those of the API."""
_LOGIN: Final = (
    "Start `claude` in a terminal and log in with /login; or give a key: claude-local takes key=…, and the variable "
    "ANTHROPIC_API_KEY."
)
_NO_SESSION: Final = "No conversation found with session ID"
_NO_MESSAGE: Final = "No message found with message.uuid"
_LIMITS: Final = ("usage limit", "session limit", "weekly limit", "hit your limit")
_NO_HEADERS: Final[Mapping[str, str]] = {}


def refused(call: Call, result: Mapping[str, object], word: str | None) -> ProviderError:
    """The error of a turn that the program says has failed. `word` is what it called the failure before."""
    said = _said(result)
    status = result.get("api_error_status")
    code = _CODES.get(word or "", None)
    if code is None and any(words in said.lower() for words in _LIMITS):
        code = "rate_limit_error"
    subtype = result.get("subtype")
    error = failure(call, status if isinstance(status, int) else None, code, said, _NO_HEADERS)
    if isinstance(error, AuthenticationError):
        error.hint = _LOGIN
    if error.code is None and isinstance(subtype, str) and subtype != "success":
        error.code = subtype
    return error


def no_session(result: Mapping[str, object]) -> bool:
    """Whether a turn failed because the session that was to be taken up is not there."""
    said = _said(result)
    return _NO_SESSION in said or _NO_MESSAGE in said


def _said(result: Mapping[str, object]) -> str:
    errors = result.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join([str(each) for each in errors])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    text = result.get("result")
    if isinstance(text, str) and text.strip():
        return text
    return str(result.get("subtype") or "")


def not_started(program: str, reason: str) -> ConfigurationError:
    """The operating system did not start it."""
    return ConfigurationError(
        f"The program {program!r} cannot be started: {reason}.",
        hint="See that it is the claude program, made for this machine, and may be run.",
    )


def crashed(call: Call, code: int | None, words: str) -> ConnectionFailedError:
    """It ended in the middle of a turn."""
    how = (
        "stopped" if code is None else f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
    )
    said = f" Its last words: {words}" if words else ""
    return ConnectionFailedError(
        f"The claude program {how} before its reply was complete.{said}",
        hint="Start `claude` in a terminal to see whether it works there.",
        provider=call.profile.provider,
        model=call.model,
        code="exited",
    )


def silent(call: Call, seconds: float, doing: str, words: str, code: str = "read_timeout") -> RequestTimeoutError:
    """It said nothing for too long."""
    said = f" Its last words: {words}" if words else ""
    return RequestTimeoutError(
        f"The claude program was given up after {seconds:g} seconds while it was {doing}.{said}",
        provider=call.profile.provider,
        model=call.model,
        code=code,
    )


def broke_off(call: Call) -> ConnectionFailedError:
    """Its connection to the provider broke, and it began anew after a part had been handed on."""
    return ConnectionFailedError(
        f"The reply of {_name(call)} broke off, and the program began it anew.",
        hint="Ask again; what had arrived is in error.partial.",
        provider=call.profile.provider,
        model=call.model,
        code="cut_off",
    )


def malformed(call: Call, what: str) -> ProtocolError:
    """It said what it must not."""
    return ProtocolError(
        f"What the claude program said cannot be used: {what}.", provider=call.profile.provider, model=call.model
    )


def too_old(version: str, least: str) -> ConfigurationError:
    """It does not know what we rely on, and would not say so."""
    return ConfigurationError(
        f"The claude program is of version {version}; {least} or newer is needed.", hint="Run `claude update`."
    )


def _name(call: Call) -> str:
    return f"{call.profile.provider}:{call.model}"
