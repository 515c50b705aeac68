"""Who may come in by HTTP.

Owns: the checks before anything is read: Host and Origin, so that no web page reaches a server on its reader's own
machine (DNS rebinding), and the bearer token.
Must not know: MCP, and what is behind it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias

from dragoman.errors import ConfigurationError

__all__ = ["ASGIApp", "Guard", "Refusal", "is_loopback_name"]

Message: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

MIN_TOKEN_LENGTH = 16
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::[0-9]{1,5})?").fullmatch
_ORIGIN = re.compile(r"https?://(?P<host>[^/?#@\\\s]+)").fullmatch
_TOKEN = re.compile(r"[\x21-\x7e]+").fullmatch


class Refusal(NamedTuple):
    """Why somebody was turned away."""

    status: int
    reason: str


def is_loopback_name(host: str) -> bool:
    """Whether this is an address, or the name, of this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _name_in(host: str) -> str | None:
    """The name in a Host header, or in the host part of an origin."""
    found = _HOST(host.lower())
    return None if found is None else (found["v6"] or found["name"].rstrip("."))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """An ASGI application before another one. `host` is what the server listens on."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        token: str | None = None,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        self._app: ASGIApp = app
        self._local: bool = is_loopback_name(host)
        self._any_address: bool = host in ("0.0.0.0", "::", "")  # noqa: S104 -- recognised, not bound
        self._hosts: frozenset[str] = frozenset({host.lower(), *map(str.lower, allowed_hosts)} | _LOOPBACK_NAMES)
        self._origins: frozenset[str] = frozenset(origin.lower().rstrip("/") for origin in allowed_origins)
        if token is None and not self._local:
            message = f"A server on {host!r} can be reached from other machines and has no token."
            raise ConfigurationError(message, hint="Give a token, such as secrets.token_urlsafe(), or use 127.0.0.1.")
        if token is not None and (len(token) < MIN_TOKEN_LENGTH or _TOKEN(token) is None):
            message = f"The token must have at least {MIN_TOKEN_LENGTH} characters, printable ones without spaces."
            raise ConfigurationError(message, hint="Take one from secrets.token_urlsafe().")
        # Only its hash is kept: comparing hashes takes the same time for every guess, whatever its length.
        self._digest: bytes | None = None if token is None else hashlib.sha256(token.encode()).digest()

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """Why a request with these headers is turned away; None if it may come in."""
        given: dict[str, list[str]] = {"host": [], "origin": [], "authorization": []}
        for name, value in headers:
            wanted = given.get(name.decode("latin-1").lower())
            if wanted is not None:
                wanted.append(value.decode("latin-1"))
        if not self._host_fits(given["host"]):
            return Refusal(421, "this server does not answer to that Host")
        if not self._origin_fits(given["origin"]):
            return Refusal(403, "this Origin is not allowed")
        if not self._token_fits(given["authorization"]):
            return Refusal(401, "a bearer token is needed")
        return None

    def _host_fits(self, values: list[str]) -> bool:
        name = _name_in(values[0]) if len(values) == 1 else None
        if name is None:
            return False
        # Where it listens on every address a bare address is safe: rebinding needs a name that an attacker owns.
        return name in self._hosts or (self._any_address and _is_address(name))

    def _origin_fits(self, values: list[str]) -> bool:
        if not values:
            return True  # not a browser
        origin = values[0].lower()
        if len(values) > 1:
            return False
        if origin in self._origins:
            return True
        found = _ORIGIN(origin)
        return self._local and found is not None and _name_in(found["host"]) in _LOOPBACK_NAMES

    def _token_fits(self, values: list[str]) -> bool:
        if self._digest is None:
            return True
        scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        found = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
        return hmac.compare_digest(found, self._digest) and scheme.lower() == "bearer"

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = Refusal(400, "only HTTP is served") if scope["type"] != "http" else self.refusal(scope["headers"])
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _turn_away(refused, send)


async def _turn_away(refused: Refusal, send: Callable[[Message], Awaitable[None]]) -> None:
    body = f'{{"error":"{refused.reason}"}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    # The body of the request was not read: without this the connection would be out of step.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
