"""What can go wrong between here and a server, in words for people.

Owns: the table of troubles: for each the error's type, what happened and what to do next.
Must not know: how an HTTP library reports them; each transport finds the code and asks here.

A text names the host and nothing else of the address. Details are words of our own or of the operating system, never
a library's text, which may repeat the whole URL.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DragomanError,
    ProtocolError,
    ProviderError,
    RequestTimeoutError,
)

from .addresses import is_loopback
from .protocol import HttpRequest, Timeouts

__all__ = ["Code", "redirected", "trouble"]

Code: TypeAlias = Literal[
    "bad_encoding",
    "bad_url",
    "certificate",
    "client_closed",
    "closed_early",
    "connect_timeout",
    "connection",
    "cut_off",
    "forked",
    "malformed",
    "pool_timeout",
    "proxy",
    "proxy_auth",
    "read_timeout",
    "redirect",
    "refused",
    "reset",
    "tls",
    "too_large",
    "unknown_host",
    "unreachable",
]
"""What went wrong, in one word; the `code` of the error."""


class _Trouble(NamedTuple):
    kind: type[DragomanError]
    happened: str
    next_step: str


_TROUBLES: Final[dict[Code, _Trouble]] = {
    "refused": _Trouble(
        ConnectionFailedError,
        "Nothing answers at {host}: the connection was refused.",
        "Check that the server is running, and the port in the base URL.",
    ),
    "unknown_host": _Trouble(
        ConnectionFailedError,
        "The host name {host} could not be found (DNS).",
        "Check its spelling in the base URL, and that this machine is online.",
    ),
    "unreachable": _Trouble(
        ConnectionFailedError,
        "There is no route to {host}.",
        "Check that this machine is online; a VPN or firewall may be in the way.",
    ),
    "proxy": _Trouble(
        ConnectionFailedError,
        "The proxy on the way to {host} could not be used.",
        "Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, or the proxy argument; NO_PROXY names hosts to reach directly.",
    ),
    "proxy_auth": _Trouble(
        ConnectionFailedError,
        "The proxy on the way to {host} asks for a user name and password.",
        "Put them into the proxy's address: http://user:password@proxy:port.",
    ),
    "certificate": _Trouble(
        ConnectionFailedError,
        "The certificate of {host} is not trusted.",
        "If your network inspects TLS or the server has its own authority, name its PEM file in SSL_CERT_FILE or in "
        "the ca_file argument; otherwise check the date of this machine and the host name.",
    ),
    "tls": _Trouble(
        ConnectionFailedError,
        "No encrypted connection to {host} could be agreed on (TLS).",
        "Check whether the server speaks https at all on this port; a local server is often http://.",
    ),
    "reset": _Trouble(
        ConnectionFailedError,
        "The connection to {host} was reset.",
        "Try again; if it persists, a proxy or firewall may be cutting long requests.",
    ),
    "closed_early": _Trouble(
        ConnectionFailedError,
        "{host} closed the connection without an answer.",
        "Try again; if it persists, check that the base URL and port belong to an HTTP server.",
    ),
    "cut_off": _Trouble(
        ConnectionFailedError,
        "The answer of {host} was cut off before its end.",
        "Try again; if it persists, a proxy may be cutting long answers.",
    ),
    "connection": _Trouble(
        ConnectionFailedError,
        "The connection to {host} failed.",
        "Check the network, the base URL and the proxy settings.",
    ),
    "connect_timeout": _Trouble(
        RequestTimeoutError,
        "No connection to {host} in time ({limits}).",
        "Check that the host is reachable from here; a firewall that drops packets looks like this.",
    ),
    "read_timeout": _Trouble(
        RequestTimeoutError,
        "{host} did not send anything, or did not finish, in time ({limits}).",
        "Raise the timeout, or ask for a shorter answer.",
    ),
    "pool_timeout": _Trouble(
        RequestTimeoutError,
        "All connections of this transport stayed busy.",
        "Close responses that are no longer read, or raise PoolLimits.connections.",
    ),
    "malformed": _Trouble(
        ProtocolError,
        "What {host} sent is not an HTTP reply.",
        "Check that the base URL and port belong to the API, and whether it wants https.",
    ),
    "bad_encoding": _Trouble(
        ProtocolError,
        "The compressed answer of {host} could not be unpacked.",
        "Try again; if it persists, a proxy may be damaging compressed answers.",
    ),
    "too_large": _Trouble(
        ProtocolError,
        "The answer of {host} is larger than the limit.",
        "Check that the base URL belongs to the API, or raise the limit.",
    ),
    "bad_url": _Trouble(
        ConfigurationError,
        "The address of the request cannot be used.",
        "Check the base URL: scheme, host name and port.",
    ),
    "client_closed": _Trouble(
        ConfigurationError,
        "The transport was closed while, or before, the request ran.",
        "Keep the transport or client open until its last response has been read.",
    ),
    "forked": _Trouble(
        ConfigurationError,
        "The HTTP client was used before this process was forked, and does not work in the child.",
        "Make the client after the fork, use the 'spawn' start method of multiprocessing, or use the httpx2 transport.",
    ),
}


_MAYBE_PLAIN: Final[frozenset[Code]] = frozenset({"closed_early", "connect_timeout", "reset", "tls"})
"""What comes of speaking TLS to a server that does not."""


def trouble(code: Code, request: HttpRequest, *, detail: str = "") -> DragomanError:
    """The error for what went wrong with this request, ready to raise."""
    kind, happened, next_step = _TROUBLES[code]
    host = request.host or "the server"
    message = happened.format(host=host, limits=_limits(request.timeout))
    if detail:
        message = f"{message[:-1]}: {detail}."
    if code == "refused" and is_loopback(host):
        next_step = (
            "Start the server on this machine (for Ollama: `ollama serve`), or correct the port in the base URL."
        )
    if code in _MAYBE_PLAIN and is_loopback(host) and request.url.startswith("https:"):
        next_step = "A server on this machine usually speaks plain http: write http:// in the base URL. " + next_step
    if issubclass(kind, ProviderError):
        return kind(message, hint=next_step, code=code)
    return kind(message, hint=next_step)


def redirected(host: str, status: int, target: str) -> ProtocolError:
    """The error for a redirect."""
    where = f"the host {target}" if target and target != host else "another address on the same host"
    return ProtocolError(
        f"{host or 'The server'} redirects to {where} ({status}). This is not followed: the key would travel along.",
        hint="Put the final address into the base URL; often it only needs https:// or another path.",
        status=status,
        code="redirect",
    )


def _limits(timeout: Timeouts) -> str:
    named = (("connect", timeout.connect), ("read", timeout.read), ("total", timeout.total))
    return ", ".join(f"{name} {seconds:g} s" for name, seconds in named if seconds is not None) or "no limit was set"
