"""From a provider's refusal to a typed error.

Owns: the table of statuses and codes, once for all dialects.
Must not know: where in a body a dialect puts its code and text; each codec takes them out and asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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

from .catalogue import PROVIDERS
from .codec import Call

__all__ = ["failure"]

_BY_CODE: Final[dict[str, type[ProviderError]]] = {
    "authentication_error": AuthenticationError,
    "invalid_api_key": AuthenticationError,
    "api_key_invalid": AuthenticationError,
    "unauthenticated": AuthenticationError,
    "permission_error": PermissionDeniedError,
    "permission_denied": PermissionDeniedError,
    "insufficient_permissions": PermissionDeniedError,
    "rate_limit_error": RateLimitError,
    "rate_limit_exceeded": RateLimitError,
    "resource_exhausted": RateLimitError,
    "insufficient_quota": RateLimitError,
    "billing_error": RateLimitError,
    "too_many_requests": RateLimitError,
    "overloaded_error": OverloadedError,
    "server_overloaded": OverloadedError,
    "insufficient_system_resource": OverloadedError,
    "server_is_overloaded": OverloadedError,
    "service_unavailable_error": OverloadedError,
    "slow_down": OverloadedError,
    "unavailable": OverloadedError,
    "context_length_exceeded": ContextTooLongError,
    "context_window_exceeded": ContextTooLongError,
    "exceed_context_size_error": ContextTooLongError,
    "content_filter": ContentFilteredError,
    "content_policy_violation": ContentFilteredError,
    "image_content_policy_violation": ContentFilteredError,
    "misalignment_policy_violation": ContentFilteredError,
    "bio_policy": ContentFilteredError,
    "cyber_policy": ContentFilteredError,
    "invalid_prompt": ContentFilteredError,
    "model_not_found": ModelNotFoundError,
    "model_not_available": ModelNotFoundError,
    "timeout": RequestTimeoutError,
    "timeout_error": RequestTimeoutError,
    "vector_store_timeout": RequestTimeoutError,
    "deadline_exceeded": RequestTimeoutError,
    "invalid_request_error": InvalidRequestError,
    "invalid_argument": InvalidRequestError,
    "failed_precondition": InvalidRequestError,
}

_BY_STATUS: Final[dict[int, type[ProviderError]]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    402: RateLimitError,
    403: PermissionDeniedError,
    404: InvalidRequestError,
    405: InvalidRequestError,
    408: RequestTimeoutError,
    409: ProviderError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    429: RateLimitError,
    503: OverloadedError,
    504: RequestTimeoutError,
    529: OverloadedError,
}

# Providers that give no code of their own for these say them in the text.
_CONTEXT_WORDS: Final = (
    "context length",
    "context window",
    "maximum context",
    "prompt is too long",
    "input token count",
    "exceeds the maximum number of tokens",
    "too many tokens",
    "context size",
    "context limit",
)


def failure(  # noqa: PLR0917 -- the fields of every provider's error
    call: Call,
    status: int | None,
    code: str | None,
    text: str,
    headers: Mapping[str, str],
    request_id: str | None = None,
) -> ProviderError:
    """The typed error for a refusal. `status` is None for an error that came inside a stream that began well."""
    kind = _kind(status, code, text)
    where = f"{call.profile.provider}:{call.model}"
    said = " ".join(text.split())[:1000] or "no reason was given"
    number = f" ({status})" if status is not None else ""
    return kind(
        f"{where} refused the request{number}: {said.rstrip('.')}.",
        provider=call.profile.provider,
        model=call.model,
        status=status,
        code=code,
        request_id=request_id or headers.get("request-id") or headers.get("x-request-id"),
        hint=_hint(kind, call, status),
    )


def _hint(kind: type[ProviderError], call: Call, status: int | None) -> str | None:
    """What to do next, in the words of this call; None: what holds for the kind of error in general."""
    provider, model = call.profile.provider, call.model
    if kind is AuthenticationError:
        row = PROVIDERS.get(provider)
        variables = f" (usually in {' or '.join(row.key_variables)})" if row is not None and row.key_variables else ""
        return f"Check that the key{variables} is the right one for {provider}, complete, and has not expired."
    if kind is ModelNotFoundError:
        return f"Check the spelling of {model!r} against the list of {provider}'s models, and that this key may use it."
    if status in (404, 405):  # nobody is there who knows what this is about
        return "Check the path of the base URL (for compatible servers it usually ends in /v1), and the model's name."
    return None


def _kind(status: int | None, code: str | None, text: str) -> type[ProviderError]:
    lower = text.lower()
    kind = _BY_CODE.get((code or "").lower())
    if kind not in (None, InvalidRequestError):
        return kind
    # A code that only says "invalid" may stand for something more particular.
    if status in (None, 400, 413, 422) and any(words in lower for words in _CONTEXT_WORDS):
        return ContextTooLongError
    if status == 404 and "model" in lower:
        return ModelNotFoundError
    return kind or _BY_STATUS.get(status or 0, ProviderError)
