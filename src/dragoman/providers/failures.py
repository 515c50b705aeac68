"""Turn the error responses of all dialects into typed errors.

The shapes of their bodies:

    {"error": {"message", "type", "code", "param"}}         OpenAI and most others; OpenRouter's code is a status
    {"type": "error", "error": {"type", "message"}}         Anthropic
    {"error": {"code": 400, "status", "details": […]}}      Google; in an array where a stream was asked for
    {"error": "text", "code": "…"}                          xAI, Hugging Face, old Ollama, gateways
    {"object": "error", "message", "type", "code"}          Mistral, vLLM; flat and without `object`: Cerebras
    {"detail": "text" or [{"loc", "msg"}]}                  servers on FastAPI
    {"message"} or {"Message"}, code in a header            Amazon; in a stream the code is the name of the frame
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman._decoding import decode
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
from .wire import as_items, as_object, as_objects, value_of

_CODES: Final[dict[type[ProviderError], str]] = {
    AuthenticationError: """authentication_error invalid_api_key api_key_invalid unauthenticated
        expiredtokenexception unrecognizedclientexception invalidsignatureexception incompletesignatureexception
        missingauthenticationtokenexception missingauthenticationtoken invalidclienttokenid""",
    PermissionDeniedError: "permission_error permission_denied insufficient_permissions accessdeniedexception",
    RateLimitError: """rate_limit_error rate_limit_exceeded resource_exhausted insufficient_quota billing_error
        too_many_requests throttlingexception servicequotaexceededexception toomanyrequestsexception""",
    OverloadedError: """overloaded_error server_overloaded insufficient_system_resource server_is_overloaded
        service_unavailable_error slow_down unavailable serviceunavailableexception modelnotreadyexception""",
    ContextTooLongError: """context_length_exceeded context_window_exceeded exceed_context_size_error
        too_many_prompt_tokens""",
    ContentFilteredError: """content_filter content_policy_violation image_content_policy_violation
        misalignment_policy_violation bio_policy cyber_policy invalid_prompt""",
    ModelNotFoundError: "model_not_found model_not_available deploymentnotfound resourcenotfoundexception",
    RequestTimeoutError: "timeout timeout_error vector_store_timeout deadline_exceeded modeltimeoutexception",
    InvalidRequestError: "invalid_request_error invalid_argument failed_precondition validationexception",
}
_BY_CODE: Final = {code: kind for kind, codes in _CODES.items() for code in codes.split()}

_BY_STATUS: Final[dict[int, type[ProviderError]]] = {
    **dict.fromkeys([400, 404, 405, 413, 415, 422], InvalidRequestError),
    **dict.fromkeys([402, 429], RateLimitError),
    **dict.fromkeys([408, 504], RequestTimeoutError),
    **dict.fromkeys([503, 529], OverloadedError),
    401: AuthenticationError,
    403: PermissionDeniedError,
}

# Texts of providers that have no code for these errors.
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
_BATCH_WORDS: Final = "increase the physical batch size"
"""llama.cpp's error (500) for a text that is too long for an embedding model."""
_MODEL_WORDS: Final = ("model identifier is invalid", "publisher model")
_KEY_WORDS: Final = ("incorrect api key", "invalid api key", "api key not valid", "api key is invalid")
_TEXTS: Final = ("message", "msg", "error_message", "detail", "title", "Message")
_REQUEST_ID_HEADERS: Final = ("request-id", "x-request-id", "apim-request-id", "x-amzn-requestid")
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
"""A google.protobuf.Duration in JSON."""


def read_refusal(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
    """The typed error of a response whose status is not 2xx. A gateway in front of the API may answer with anything.

    Header names are lower case.
    """
    try:
        content: object = decode(body)
    except (msgspec.DecodeError, UnicodeError):
        content = body.strip()[:1000].decode(errors="replace")
    return error_from(content, call, status, headers)


def error_in(fields: Mapping[str, Raw], call: Call) -> ProviderError:
    """The typed error of an event, or of a body with a status of 200 that is an error nevertheless."""
    return error_from({name: value_of(raw) for name, raw in fields.items()}, call)


def error_from(
    content: object, call: Call, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """The typed error for the decoded content of an error, in any shape. Errors inside a stream have no status."""
    first, *_ = as_items(content) or [content]
    whole = as_object(first) or {"message": _text(first)}
    error = whole.get("error")
    inner = as_object(error) or ({**whole, "message": error} if isinstance(error, str) and error else whole)
    for found in (inner.get("status_code"), inner.get("code")):
        if status is None and isinstance(found, int) and 400 <= found <= 599:
            status = found
    details = as_objects(inner.get("details"))
    # Google reports a wrong key as an invalid argument; the details tell.
    is_wrong_key = any(detail.get("reason") == "API_KEY_INVALID" for detail in details)
    code = "API_KEY_INVALID" if is_wrong_key else _text(inner.get("code")) or _amazon_code(inner, headers or {})
    kind = _text(inner.get("type")) or _text(inner.get("status"))
    text = _text_of(inner) or _text_of(whole)
    # A code that is unknown or only means "invalid" is less specific than a known type beside it.
    specific = next((one for one in (code, kind) if _by_code(one) not in (None, InvalidRequestError)), None)
    request_id = _text(whole.get("request_id"))
    made = failure(call, status, specific or code or kind or None, text, headers or {}, request_id=request_id)
    made.code = code or kind or None
    for detail in details:
        if (wait := _DURATION.fullmatch(_text(detail.get("retryDelay")))) is not None:
            made.retry_after = float(wait[1])
    return made


def _amazon_code(fields: Mapping[str, object], headers: Mapping[str, str]) -> str:
    """Amazon's error code, without the address that may be before or after it."""
    code = headers.get("x-amzn-errortype") or _text(fields.get("__type"))
    return code.partition(":")[0].rpartition("#")[2]


def _text_of(fields: dict[str, object]) -> str:
    """The message, with that of the server behind a router, and the output of the model that could not be used."""
    found = [
        next((fields[name] for name in _TEXTS if fields.get(name)), None),
        as_object(fields.get("metadata")).get("raw"),
    ]
    texts = [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in found if one]
    if written := _text(fields.get("failed_generation")):
        texts.append(f"the model wrote: {written}")
    return ": ".join(texts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def failure(
    call: Call, status: int | None, code: str | None, text: str, headers: Mapping[str, str], *, request_id: str = ""
) -> ProviderError:
    """The typed error for a refused request. `status` is None for an error inside a stream."""
    kind = _kind(status, code, text)
    where = f"{call.profile.provider}:{call.model}"
    reason = " ".join(text.split())[:1000] or "no reason was given"
    number = f" ({status})" if status is not None else ""
    return kind(
        f"{where} refused the request{number}: {reason.rstrip('.')}.",
        provider=call.profile.provider,
        model=call.model,
        status=status,
        code=code,
        request_id=request_id or next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), None),
        hint=_hint(kind, call, status),
    )


def _hint(kind: type[ProviderError], call: Call, status: int | None) -> str | None:
    """What to do next for this call; None: the general hint of the error's class."""
    provider, model = call.profile.provider, call.model
    row = PROVIDERS.get(provider)
    if row is not None and row.cloud is not None and (hint := _CLOUD_HINTS.get((row.cloud, kind))) is not None:
        return hint.format(model=repr(model))
    if kind is AuthenticationError:
        variables = f" (usually in {' or '.join(row.key_variables)})" if row is not None and row.key_variables else ""
        return f"Check that the key{variables} is the right one for {provider}, complete, and has not expired."
    if kind is ModelNotFoundError:
        return f"Check the spelling of {model!r} against the list of {provider}'s models, and that this key may use it."
    if status in (404, 405):  # the server does not know the path
        return "Check the path of the base URL (for compatible servers it usually ends in /v1), and the model's name."
    return None


_CLOUD_HINTS: Final[dict[tuple[str, type[ProviderError]], str]] = {
    ("amazon", AuthenticationError): "The keys have expired or are wrong: sign in again (aws sso login), renew "
    "AWS_SESSION_TOKEN or AWS_BEARER_TOKEN_BEDROCK, and check the clock of this machine.",
    ("amazon", PermissionDeniedError): "Allow bedrock:InvokeModel and bedrock:InvokeModelWithResponseStream for "
    "{model} in the policy of this identity, and see that the account has access to the model in this region.",
    ("amazon", ModelNotFoundError): "Check the id {model}, and that the model is offered in this region (region=…, "
    "AWS_REGION); many are asked through a profile of several regions, such as us.… or global.….",
    ("azure", AuthenticationError): "Check AZURE_OPENAI_API_KEY against the keys of the resource, or sign in again "
    "(az login); and that the key and the address are those of the same resource.",
    ("azure", PermissionDeniedError): "Give this identity the role Cognitive Services OpenAI User on the resource, "
    "and see that its network lets you in.",
    ("azure", ModelNotFoundError): "The model is the name of a deployment: see that {model} is deployed in the "
    "resource that base_url or AZURE_OPENAI_ENDPOINT names. A new one takes some minutes.",
    ("google", AuthenticationError): "Sign in again: gcloud auth application-default login; or renew what "
    "GOOGLE_APPLICATION_CREDENTIALS names.",
    ("google", PermissionDeniedError): "Give this identity the role Vertex AI User in the project, and enable the "
    "Vertex AI API there (project=…, GOOGLE_CLOUD_PROJECT).",
    ("google", ModelNotFoundError): "Check the spelling of {model}, that it is offered in this region (region=…, "
    'GOOGLE_CLOUD_LOCATION; "global" has the most), and that the project has access to it.',
}


def _kind(status: int | None, code: str | None, text: str) -> type[ProviderError]:
    lower = text.lower()
    if _BATCH_WORDS in lower:
        return ContextTooLongError
    kind = _by_code(code)
    if kind not in (None, InvalidRequestError):
        return kind
    # A code that only means "invalid" may be made more specific by the text or the status.
    if status in (None, 400, 413, 422) and any(words in lower for words in _CONTEXT_WORDS):
        return ContextTooLongError
    if status in (None, 400) and any(words in lower for words in _KEY_WORDS):
        return AuthenticationError
    if (status == 404 and "model" in lower) or any(words in lower for words in _MODEL_WORDS):
        return ModelNotFoundError
    return _BY_STATUS.get(status or 0, kind or ProviderError)


def _by_code(code: str | None) -> type[ProviderError] | None:
    return _BY_CODE.get((code or "").lower())
