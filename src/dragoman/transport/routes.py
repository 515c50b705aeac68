"""Routing: proxies, certificate authorities, and the checks of requests and response heads.

Owns: the meaning of the arguments and environment variables for proxies and certificates. Functions that raise have no
key, password or environment among their local variables, since some tracebacks show these.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .addresses import host_of, is_loopback, origin_of, port_of
from .errors import error_for, redirect_error
from .http1 import ACCEPTED_ENCODINGS, start_of_head
from .protocol import USER_AGENT, HttpRequest

_CA_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY: Final = re.compile(r"(?i:https?|socks5h?)://.*\S").fullmatch
_CA_HINT: Final = f"Check the ca_file argument and the variables {', '.join(_CA_VARIABLES)}."


def _variable(env: Mapping[str, str], name: str) -> str:
    # Lower case first, as curl does. In a CGI program HTTP_PROXY comes from the request header "Proxy:", so it is not
    # trusted there.
    upper = "" if name == "http_proxy" and "REQUEST_METHOD" in env else env.get(name.upper(), "")
    return env.get(name, "") or upper


def _proxies(env: Mapping[str, str]) -> dict[str, str]:
    everything = _variable(env, "all_proxy")
    found = {scheme: _variable(env, f"{scheme}_proxy") or everything for scheme in ("http", "https")}
    # Variables often contain only "host:port".
    return {scheme: value if "://" in value else f"http://{value}" for scheme, value in found.items() if value}


def _matches(rule: str, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY matches this host.

    It is `*`, a network, a domain (with or without a leading dot) or an address, with an optional port.
    """
    if rule == "*":
        return True
    from ipaddress import ip_address, ip_network  # slow to import, and rarely needed

    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None and "/" in rule:
        try:
            return address in ip_network(rule, strict=False)
        except ValueError:
            return False
    name, colon, number = rule.rpartition(":")
    if colon and number.isdecimal() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        rule = name
    rule = rule.strip("[]").removeprefix("*").removeprefix(".")
    return bool(rule) and (host == rule or (address is None and host.endswith(f".{rule}")))


# --- checks ----------------------------------------------------------------------------------------------------------

# Strict, so that all parsers find the same host in it. No user name, no backslash.
_URL: Final = re.compile(
    r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9._-]*)(?::[0-9]{1,5})?(?:[/?][!-\[\]-~]*)?"
).fullmatch
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
# Visible ASCII, with blanks and tabs between characters but not around them.
_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t]*[!-~])*)?").fullmatch


def check_request(request: HttpRequest) -> None:
    """Raise for a URL or header that cannot be sent. Neither is shown: they may contain a key."""
    if _URL(request.url) is None:
        raise error_for("bad_url", request)
    for name in request.headers:
        if _NAME(name) is None:
            message = f"{name!r} is not a valid header name."
            raise ConfigurationError(message, hint="Use letters, digits and hyphens only.")
        if _VALUE(request.headers[name]) is None:
            message = (
                f"The header {name!r} contains a line break, a leading or trailing blank, or a non-ASCII character."
            )
            hint = "If it is an API key, copy the key again; one that was read from a file needs .strip()."
            raise ConfigurationError(message, hint=hint)


def check_head(request: HttpRequest, status: int, headers: Mapping[str, str]) -> None:
    """Raise for a redirect, and for a proxy that asks for a password."""
    if status == 407:
        raise error_for("proxy_auth", request)
    if 300 <= status < 400:
        raise redirect_error(request.host, status, host_of(headers.get("location", "")))


# --- routes ----------------------------------------------------------------------------------------------------------


class Route(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The route to an origin. Connections of one route are interchangeable."""

    scheme: str
    host: str
    port: int
    proxy: tuple[str, int] | None = None
    proxy_authorization: str | None = None

    def __repr__(self) -> str:  # without the proxy's password
        return f"Route({self.scheme}, {self.host}, {self.port}{', proxy' if self.proxy else ''})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("scheme", self.scheme), ("host", self.host), ("port", self.port)]

    @property
    def address(self) -> tuple[str, int]:
        return self.proxy or (self.host, self.port)

    @property
    def encrypted(self) -> bool:
        return self.scheme == "https"

    @property
    def tunnel(self) -> bytes:
        """The CONNECT request for the proxy; empty if no tunnel is needed."""
        if self.proxy is None or not self.encrypted:
            return b""
        target = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        authorization = f"proxy-authorization: {self.proxy_authorization}\r\n" if self.proxy_authorization else ""
        return f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{authorization}\r\n".encode("ascii")


class Beginning:
    """The route and encoded head of requests to a URL. Not a tuple: its repr would show the key."""

    __slots__ = ("head", "headers", "method", "route")

    def __init__(self, route: Route, request: HttpRequest, head: bytes) -> None:
        self.route: Route = route
        self.method: str = request.method
        self.headers: Mapping[str, str] = dict(request.headers)
        """A copy, since the caller may change its mapping."""
        self.head: bytes = head


class Routes:
    """Finds the route for a request.

    `proxy` is used for every host; an empty text means no proxy, None the environment's. Authorities in `ca_file` and
    in the environment are trusted in addition to the system's. `environ={}` ignores the environment.
    """

    def __init__(
        self,
        *,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        env: Mapping[str, str] = os.environ if environ is None else environ
        files = [os.fspath(ca_file)] if ca_file is not None else []
        self._ca_files: list[str] = files + [env[name] for name in _CA_VARIABLES if env.get(name)]
        self._asks_env: bool = proxy is None
        self._proxies: dict[str, str] = _proxies(env) if proxy is None else dict.fromkeys(("http", "https"), proxy)
        self._direct: list[str] = [part.strip().lower() for part in _variable(env, "no_proxy").split(",")]
        self._context: ssl.SSLContext | None = None
        del env, environ, proxy
        if not all(_PROXY(each) and host_of(each) for each in self._proxies.values() if each):
            message = "The address of the proxy cannot be used."
            hint = "Write http://host:port (or https, socks5, socks5h) in HTTPS_PROXY or in the proxy argument."
            raise ConfigurationError(message, hint=hint)

    def proxy_for(self, url: str) -> str | None:
        """The proxy for this URL, or None. The environment's proxy is not used for this machine itself."""
        proxy, host = self._proxies.get(url.partition(":")[0].lower()), host_of(url)
        if not proxy or not self._asks_env:
            return proxy or None
        if is_loopback(host) or any(_matches(rule, host, port_of(url)) for rule in self._direct):
            return None
        return proxy

    def find(self, request: HttpRequest) -> Beginning:
        """The route of the request and its encoded head. Raises if the request cannot be sent."""
        check_request(request)
        origin = origin_of(request.url)
        route, prefix, usual = self._route(origin)
        target = "/" + request.url[len(origin) :].partition("#")[0].removeprefix("/")
        return Beginning(route, request, start_of_head(request, target=prefix + target, usual=usual))

    def _route(self, origin: str) -> tuple[Route, str, dict[str, str]]:
        """The route to an origin, the prefix of the request target, and the default headers."""
        scheme, _, authority = origin.partition("://")
        proxy, authorization = self._proxy(self.proxy_for(origin))
        route = Route(
            scheme=scheme,
            host=host_of(origin),
            port=port_of(origin) or 0,
            proxy=proxy,
            proxy_authorization=authorization,
        )
        usual = {"host": authority, "user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": ACCEPTED_ENCODINGS}
        if proxy is None or route.encrypted:
            return route, "", usual
        if authorization:
            usual["proxy-authorization"] = authorization
        return route, origin, usual

    @staticmethod
    def _proxy(address: str | None) -> tuple[tuple[str, int] | None, str | None]:
        if address is None:
            return None, None
        scheme = address.partition("://")[0].lower()
        if scheme != "http":
            del address
            message = f"This transport does not support {scheme} proxies."
            hint = (
                "Use a proxy with an http:// address, or HttpxTransport (the extra httpx2), which supports the others."
            )
            raise ConfigurationError(message, hint=hint)
        from urllib.parse import unquote, urlsplit  # rarely needed

        parts, authorization = urlsplit(address), None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            authorization = f"Basic {base64.b64encode(pair).decode()}"
        return (host_of(address), port_of(address) or 80), authorization

    @property
    def tls(self) -> ssl.SSLContext:
        """The TLS context, with the authorities of the system and the given ones."""
        if self._context is None:
            context = ssl.create_default_context()
            context.set_alpn_protocols(["http/1.1"])
            # Early releases of 3.11 take an end without TLS close_notify, which may be an attacker's, for a good one.
            context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
            for name in dict.fromkeys(self._ca_files):
                try:
                    context.load_verify_locations(cafile=name)
                except OSError as error:  # ssl.SSLError is one, too
                    message = f"The file of certificate authorities {name!r} cannot be read: {error.strerror}."
                    raise ConfigurationError(message, hint=_CA_HINT) from error
            self._context = context
        return self._context
