"""Tokens from the clouds' own libraries (Microsoft's Entra ID, and Google), which are extras, imported when used.

Also the small requests for metadata and tokens. They block: on an event loop, keys are generated in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dragoman._stepping import step
from dragoman.engines.credential import Token
from dragoman.errors import AuthenticationError, MissingKeyError
from dragoman.transport import HttpRequest, SocketTransport, Timeouts

_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def entra_token(scope: str) -> Callable[[], Token]:
    """A function that gets a token from Microsoft's library: by variables, a managed identity or `az login`."""
    _require("azure.identity", "azure", "Set AZURE_OPENAI_API_KEY, pass key=…, or sign in (az login) and")
    credential: list[Any] = []

    def make() -> Token:
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import DefaultAzureCredential

        if not credential:
            credential.append(DefaultAzureCredential())
        try:
            found = credential[0].get_token(scope)
        except ClientAuthenticationError as error:
            why = str(error.message).partition("\n")[0].rstrip(".")
            hint = "Sign in (az login), set AZURE_CLIENT_ID and related variables, or a key: AZURE_OPENAI_API_KEY."
            raise AuthenticationError(f"Entra ID returned no token: {why}.", hint=hint) from error
        return Token(found.token, float(found.expires_on))

    return make


def google_token() -> Callable[[], Token]:
    """A function that gets a token from Google's library: by a service account, the instance or `gcloud auth`."""
    _require("google.auth", "vertex", "Sign in (gcloud auth application-default login) and")
    credential: list[Any] = []

    def make() -> Token:
        library: Any = import_module("google.auth")  # half of its types are unknown
        try:
            if not credential:
                credential.append(library.default(scopes=[_GOOGLE_SCOPE])[0])
            found = credential[0]
            found.refresh(_request)
        except library.exceptions.GoogleAuthError as error:
            why = str(error.args[0] if error.args else error).partition("\n")[0].rstrip(".")
            hint = "Sign in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS."
            raise AuthenticationError(f"Google returned no token: {why}.", hint=hint) from error
        expires = found.expiry.replace(tzinfo=UTC).timestamp() if found.expiry else None
        return Token(found.token, expires)

    return make


def _require(module: str, provider: str, first: str) -> None:
    try:
        is_installed = find_spec(module) is not None
    except ImportError:  # its parent package is missing
        is_installed = False
    if not is_installed:
        message = f"There is no key for {provider}, and its library for tokens is not installed."
        hint = f"{first} install it: pip install 'dragoman[{provider}]'."
        raise MissingKeyError(message, hint=hint, provider=provider)


def _request(
    url: str,
    method: str = "GET",
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_more: object,
) -> Fetched:
    """Sends the requests of Google's library with our transport, which Ctrl-C and a deadline can interrupt."""
    data = body.encode() if isinstance(body, str) else body or b""
    return fetch(url, method=method, headers=headers, body=data, seconds=timeout or 30.0)


# --- requests ---------------------------------------------------------------------------------------------------------


class Fetched(NamedTuple):
    """A reply, with the names that Google's library expects. It may contain a key, so it is not printed."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def __repr__(self) -> str:
        return f"Fetched({self.status}, …)"


def fetch(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    seconds: float = 10.0,
    sign: Callable[[HttpRequest], Mapping[str, str]] | None = None,
) -> Fetched:
    """Send a request and read the whole reply. Raises ConnectionFailedError or RequestTimeoutError."""
    timeout = Timeouts(connect=seconds, read=seconds, total=seconds)
    request = HttpRequest(url=url, method=method, headers=headers or {}, body=body, timeout=timeout)
    if sign is not None:
        request = replace(request, headers={**request.headers, **sign(request)})
    transport = SocketTransport()
    try:
        response = step(transport.open(request))
        return Fetched(response.status, response.headers, step(response.read()))
    finally:
        step(transport.aclose())
