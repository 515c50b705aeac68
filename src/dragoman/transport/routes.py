"""Where a request goes and what is said on the way there, for the transports that speak HTTP themselves.

Owns: routes (server, proxy, tunnel), the TLS context, heads of requests, what sockets and TLS say when they fail.
Must not know: plain or async.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct

from dragoman.errors import ConfigurationError, DragomanError

from .addresses import host_of, origin_of, port_of
from .bases import USER_AGENT, check_request
from .decoding import accepted_encodings
from .environment import Surroundings, authorities
from .http1 import MalformedReplyError, end_of_head, start_of_head
from .protocol import HttpRequest
from .troubles import Code, trouble

_MAX_KNOWN: Final = 256

__all__ = ["Route", "Routes", "failure", "watch"]


class Route(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The way to an origin. Connections of one route are interchangeable."""

    scheme: str
    host: str
    port: int
    proxy: tuple[str, int] | None = None
    proxy_authorization: str | None = None

    def __repr__(self) -> str:  # without the proxy's password
        return f"Route({self.scheme}, {self.host}, {self.port}{', proxy' if self.proxy else ''})"

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect."""
        return self.proxy or (self.host, self.port)

    @property
    def encrypted(self) -> bool:
        return self.scheme == "https"

    @property
    def tunnel(self) -> bytes:
        """What asks the proxy for a way through; empty where no tunnel is needed."""
        if self.proxy is None or not self.encrypted:
            return b""
        target = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        authorization = f"proxy-authorization: {self.proxy_authorization}\r\n" if self.proxy_authorization else ""
        return f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{authorization}\r\n".encode("ascii")


class _Known(NamedTuple):
    """What the last request to an address was found to need; the next one mostly has the same headers."""

    route: Route
    method: str
    headers: Mapping[str, str]
    """A copy: what a caller does to its own mapping must not change what is compared."""
    head: bytes
    """How the head begins."""


class Routes:
    """Finds the route for a request and writes it down."""

    def __init__(
        self,
        *,
        proxy: str | None,
        ca_file: str | os.PathLike[str] | None,
        trust_env: bool,
        environ: Mapping[str, str] | None,
    ) -> None:
        self._surroundings: Surroundings = Surroundings.of(
            proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ
        )
        self._encodings: str = accepted_encodings()
        self._origins: dict[str, tuple[Route, str, dict[str, str]]] = {}
        self._known: dict[str, _Known] = {}
        self._context: ssl.SSLContext | None = None

    def find(self, request: HttpRequest) -> tuple[Route, bytes]:
        """The route of the request, and the bytes to send along it. Raises if the request cannot be sent."""
        known = self._known.get(request.url)
        if known is None or known.method != request.method or known.headers != request.headers:
            known = self._learn(request)
        return known.route, b"".join((known.head, end_of_head(request), request.body))

    def _learn(self, request: HttpRequest) -> _Known:
        check_request(request)
        origin = origin_of(request.url)
        if origin not in self._origins:
            if len(self._origins) >= _MAX_KNOWN:
                self._origins.clear()
            self._origins[origin] = self._route(origin)
        route, prefix, further = self._origins[origin]
        target = request.url[len(origin) :].partition("#")[0]
        if not target.startswith("/"):
            target = f"/{target}"
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        head = start_of_head(request, target=prefix + target, usual=further)
        known = self._known[request.url] = _Known(route, request.method, dict(request.headers), head)
        return known

    def _route(self, origin: str) -> tuple[Route, str, dict[str, str]]:
        """The route to an origin, what stands before the path in a request, and the headers that all requests have."""
        scheme, _, authority = origin.partition("://")
        proxy, authorization = self._proxy(self._surroundings.proxy_for(origin))
        route = Route(
            scheme=scheme,
            host=host_of(origin),
            port=port_of(origin) or 0,
            proxy=proxy,
            proxy_authorization=authorization,
        )
        usual = {"host": authority, "user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": self._encodings}
        if proxy is None or route.encrypted:
            return route, "", usual
        if authorization:
            usual["proxy-authorization"] = authorization
        return route, origin, usual

    @staticmethod
    def _proxy(address: str | None) -> tuple[tuple[str, int] | None, str | None]:
        if address is None:
            return None, None
        import base64
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(address)
        if parts.scheme != "http":
            message = f"This transport cannot speak to a proxy over {parts.scheme}."
            hint = (
                "Use a proxy with an http:// address, or the pyreqwest transport, which knows https and socks5 proxies."
            )
            raise ConfigurationError(message, hint=hint)
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            authorization = f"Basic {base64.b64encode(pair).decode()}"
        return (host_of(address), port_of(address) or 80), authorization

    @property
    def tls(self) -> ssl.SSLContext:
        """The context for encrypted connections: the authorities of the system and those that were named."""
        if self._context is None:
            context = ssl.create_default_context()
            context.set_alpn_protocols(["http/1.1"])
            for pem in authorities(self._surroundings):
                try:
                    context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
                except ssl.SSLError as error:
                    message = "A file of certificate authorities holds a certificate that cannot be read."
                    raise ConfigurationError(message) from error
            self._context = context
        return self._context


def watch(number: int) -> Callable[[], Sequence[object]]:
    """A way to ask whether something has come for an open file: for an idle connection, that its end is near."""
    if not hasattr(select, "poll"):  # on Windows; and only there does `select` take any number
        return lambda: select.select([number], [], [], 0)[0]
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return partial(poll.poll, 0)


# --- errors ----------------------------------------------------------------------------------------------------------

_NUMBERS: Final[dict[int, Code]] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.ECONNABORTED: "reset",
    errno.EPIPE: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.ETIMEDOUT: "connect_timeout",
}

_CERTIFICATE_WORDS: Final = (
    ("expired", "it has expired, or the clock of this machine is wrong"),
    ("not yet valid", "it is not valid yet, or the clock of this machine is wrong"),
    ("mismatch", "it is made out for another host name"),
    ("not valid for", "it is made out for another host name"),
    ("issuer", "nobody that this machine trusts has signed it"),
    ("self", "nobody that this machine trusts has signed it"),
)


def failure(error: Exception, request: HttpRequest, *, connecting: bool, proxied: bool = False) -> DragomanError:
    """Our error for what a socket, TLS or the reader of replies raised."""
    code, detail = _judged(error, connecting=connecting)
    if proxied and connecting and code in ("refused", "unreachable", "unknown_host", "connect_timeout", "reset"):
        code = "proxy"
    return trouble(code, request, detail=detail)


def _judged(error: Exception, *, connecting: bool) -> tuple[Code, str]:
    if isinstance(error, MalformedReplyError):
        return "malformed", str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.lower()
        return "certificate", next((words for sign, words in _CERTIFICATE_WORDS if sign in said), "")
    if isinstance(error, ssl.SSLEOFError | EOFError):
        return ("tls" if connecting and isinstance(error, ssl.SSLError) else "cut_off"), ""
    if isinstance(error, ssl.SSLError):
        return ("tls" if connecting else "reset"), ""
    if isinstance(error, socket.gaierror | UnicodeError):
        return "unknown_host", ""
    if isinstance(error, TimeoutError):
        return ("connect_timeout" if connecting else "read_timeout"), ""
    if isinstance(error, ValueError):
        return "bad_encoding", ""
    number = error.errno if isinstance(error, OSError) else None
    return _NUMBERS.get(number or 0, "connection" if connecting else "reset"), ""
