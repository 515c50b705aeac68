"""Tokens from the clouds' own libraries: Entra ID of Microsoft, and Google. They are extras, imported when used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from dragoman.engines.credential import Token
from dragoman.errors import AuthenticationError, MissingKeyError

from .fetching import fetch

_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def entra_token(scope: str) -> Callable[[], Token]:
    """A function that has Microsoft's library make a token: by variables, a managed identity or `az login`."""
    _require("azure.identity", "azure", "azure", "Set AZURE_OPENAI_API_KEY, give key=…, or sign in (az login) and")
    credential: list[Any] = []

    def make() -> Token:
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import DefaultAzureCredential

        if not credential:
            credential.append(DefaultAzureCredential())
        try:
            found = credential[0].get_token(scope)
        except ClientAuthenticationError as error:
            said = str(error.message).partition("\n")[0].rstrip(".")
            hint = "Sign in (az login), set AZURE_CLIENT_ID and its kin, or give a key: AZURE_OPENAI_API_KEY."
            raise AuthenticationError(f"Entra ID gave no token: {said}.", hint=hint) from error
        return Token(found.token, float(found.expires_on))

    return make


def google_token() -> Callable[[], Token]:
    """A function that has Google's library make a token: by a service account, the instance or `gcloud auth`."""
    _require("google.auth", "vertex", "vertex", "Sign in (gcloud auth application-default login) and")
    credential: list[Any] = []

    def make() -> Token:
        library: Any = import_module("google.auth")  # half of its types are unknown
        try:
            if not credential:
                credential.append(library.default(scopes=[_GOOGLE_SCOPE])[0])
            found = credential[0]
            found.refresh(_request)
        except library.exceptions.GoogleAuthError as error:
            said = str(error.args[0] if error.args else error).partition("\n")[0].rstrip(".")
            hint = "Sign in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS."
            raise AuthenticationError(f"Google gave no token: {said}.", hint=hint) from error
        expires = found.expiry.replace(tzinfo=UTC).timestamp() if found.expiry else None
        return Token(found.token, expires)

    return make


def _require(module: str, extra: str, provider: str, first: str) -> None:
    try:
        is_there = find_spec(module) is not None
    except ImportError:  # not even the package that it is in
        is_there = False
    if not is_there:
        message = f"There is no key for {provider}, and the library that makes tokens for it is not installed."
        hint = f"{first} install it: pip install 'dragoman[{extra}]'."
        raise MissingKeyError(message, hint=hint, provider=provider)


class _Answer:
    """A reply as Google's library reads it."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status: int = status
        self.headers: Mapping[str, str] = headers
        self.data: bytes = data


def _request(
    url: str,
    method: str = "GET",
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_more: object,
) -> _Answer:
    """What Google's library sends its requests with: our transport, which Ctrl-C and a deadline can interrupt."""
    data = body.encode() if isinstance(body, str) else body or b""
    return _Answer(*fetch(url, method=method, headers=headers, body=data, seconds=timeout or 30.0))
