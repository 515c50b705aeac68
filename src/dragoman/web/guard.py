"""Access to the page, and the security headers of its responses.

On loopback, access needs the token of the printed address. It is exchanged for a cookie that scripts cannot read and
other sites cannot make the browser send, valid until the server ends. Beyond loopback, access needs the password, or a
proxy that names the user in a header. Requests with a foreign Host or Origin are refused first, so that a page
elsewhere cannot reach this server through the browser.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from dragoman.errors import ConfigurationError
from dragoman.transport import is_loopback

from .log import App, Receive, Scope, Send

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_LONGEST_FORM: Final = 4096
_MOST_GUESSES: Final = 10
"""Wrong passwords in a row after which all are refused until the server is restarted."""

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types dompurify"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=()",
}

_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>dragoman</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/assets/login.css">
<main><h1>dragoman</h1>{content}</main></html>"""
_LOGIN: Final = """<p role="alert">{problem}</p><form method="post" action="/login">
<label for="password">Password</label><input id="password" name="password" type="password" autofocus required
autocomplete="current-password"><button>Sign in</button></form>"""
_WRONG: Final = "That is not the password."
_LOCKED: Final = "There were too many wrong passwords. Restart the server to try again."
_CLOSED: Final = """<p>This page belongs to the person who started it. Open the address that <code>dragoman web</code>
printed in the terminal; it contains a token.</p>"""


class Access:
    """How the page is protected.

    A `host` beyond loopback needs a `password` or a `proxy_header`. `allowed_hosts` are further names of the server,
    such as that of a proxy.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        password: str | None = None,
        proxy_header: str | None = None,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        if not is_loopback(host) and password is None and proxy_header is None:
            message = f"A page on {host!r} can be reached from other machines, and nothing keeps people out."
            hint = "Set a password, or name the header in which a proxy says who comes; or use 127.0.0.1."
            raise ConfigurationError(message, hint=hint)
        if password is not None and proxy_header is not None:
            message = "A page is protected by a password or by a proxy's header, not by both."
            raise ConfigurationError(message, hint="Leave out one of them.")
        if password is not None and len(password) < 8:
            raise ConfigurationError("The password must have at least 8 characters.", hint="Choose a longer one.")
        self.token: str | None = secrets.token_urlsafe(32) if password is None and proxy_header is None else None
        """The token in the printed address."""
        self.proxy_header: str | None = proxy_header.lower() if proxy_header is not None else None
        self._password: bytes | None = None if password is None else _digest(password)
        self._session: str = secrets.token_urlsafe(32)
        self._guesses: int = 0
        given = f"[{host}]" if ":" in host else host
        named = tuple(allowed_hosts)
        self._hosts: frozenset[str] = frozenset([*_LOOPBACK_NAMES, given, *named])
        self._any_host: bool = host in ("0.0.0.0", "::") and not named  # noqa: S104 -- it was asked for

    def address(self, url: str) -> str:
        """The address to open."""
        return url if self.token is None else f"{url}/?token={self.token}"

    def fits_host(self, request: Request) -> bool:
        """Whether the Host header names this server, which DNS rebinding does not.

        If the server listens on all addresses, that is also the address of the connection.
        """
        name = _without_port(request.headers.get("host", ""))
        if self._any_host:
            server = request.scope.get("server") or ("", 0)
            return name in self._hosts or name.strip("[]") == server[0]
        return name in self._hosts

    @staticmethod
    def fits_origin(request: Request) -> bool:
        """Whether the request comes from the page itself. One that changes something must have an Origin.

        A link from another site leads to the page, but not to the API.
        """
        headers = request.headers
        origin = headers.get("origin")
        if origin is None:
            is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
            return request.method in ("GET", "HEAD") and (
                headers.get("sec-fetch-site", "none") in ("same-origin", "none")
                or (is_link and not request.url.path.startswith("/api/"))
            )
        return urlsplit(origin).netloc == request.headers.get("host") and urlsplit(origin).scheme in ("http", "https")

    def cookie_name(self, request: Request) -> str:
        """With the port: a browser shares cookies between all ports of a host."""
        return f"dragoman_{(request.scope.get('server') or ('', 0))[1]}"

    def knows(self, request: Request) -> bool:
        """Whether the request has the cookie, or the header of the proxy."""
        if self.proxy_header is not None:
            return bool(request.headers.get(self.proxy_header))
        return _equal(request.cookies.get(self.cookie_name(request), ""), self._session)

    async def refuse(self, request: Request, open_path: str) -> Response | None:
        """The response to a request without access, or to a sign-in; None if the page itself answers."""
        path = request.url.path
        if not self.fits_host(request) or not self.fits_origin(request):
            return JSONResponse({"error": "This request comes from another page, or under another name."}, 403)
        if path == open_path or self.knows(request):
            return None
        if self.token is not None and _equal(request.query_params.get("token", ""), self.token):
            return self._sign_in(request)
        problem = ""
        if path == "/login" and request.method == "POST" and self._password is not None:
            if await self._takes_password(request):
                return self._sign_in(request)
            problem = _WRONG
        elif path.startswith("/api/"):
            return JSONResponse({"error": "You are signed out.", "hint": "Open the address again."}, 401)
        login = _LOGIN.format(problem=_LOCKED if self._guesses >= _MOST_GUESSES else problem)
        return HTMLResponse(_PAGE.format(content=_CLOSED if self._password is None else login), 401)

    async def _takes_password(self, request: Request) -> bool:
        """Whether the form has the password. After too many wrong ones, all are refused."""
        given = await _read_password(request)
        if self._password is None or self._guesses >= _MOST_GUESSES:
            return False
        fits = hmac.compare_digest(_digest(given), self._password)
        self._guesses = 0 if fits else self._guesses + 1
        return fits

    def _sign_in(self, request: Request) -> Response:
        """Redirect to the page, with the cookie and without the token."""
        response = RedirectResponse("/", 303)
        secure = request.headers.get("x-forwarded-proto") == "https" or request.url.scheme == "https"
        name = self.cookie_name(request)
        response.set_cookie(name, self._session, httponly=True, samesite="strict", secure=secure)
        return response


def guard(app: App, access: Access, *, open_path: str) -> App:
    """The app behind `access`. The file at `open_path`, the style of the login page, is public."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = await access.refuse(Request(scope, receive), open_path)
        await (answer or app)(scope, receive, send_with_headers)

    return guarded


async def _read_password(request: Request) -> str:
    found = b""
    async for piece in request.stream():
        found += piece
        if len(found) > _LONGEST_FORM:
            return ""
    return parse_qs(found.decode("utf-8", "replace")).get("password", [""])[0]


def _digest(text: str) -> bytes:
    """Compared instead of the text, whose length would affect the time."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(_digest(given), _digest(wanted))


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
