"""Network failures as typed errors.

A message contains only the host of the URL. Details are our own words, never a library's text, which may contain the
whole URL.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from dragoman.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DragomanError,
    ProtocolError,
    ProviderError,
    RequestTimeoutError,
)

from .addresses import is_loopback

if TYPE_CHECKING:
    from .protocol import HttpRequest, Timeouts


class MalformedReplyError(Exception):
    """The bytes are not a valid response. The message does not quote them."""


_TEXTS: Final[dict[type[DragomanError], dict[str, tuple[str, str]]]] = {
    ConnectionFailedError: {
        "refused": (
            "Nothing answers at {host}: the connection was refused.",
            "Check that the server is running, and the port in the base URL.",
        ),
        "unknown_host": (
            "The host name {host} could not be found (DNS).",
            "Check its spelling in the base URL, and that this machine is online.",
        ),
        "unreachable": (
            "There is no route to {host}.",
            "Check that this machine is online; a VPN or firewall may be in the way.",
        ),
        "proxy": (
            "The proxy on the way to {host} could not be used.",
            "Check the proxy argument, HTTPS_PROXY, HTTP_PROXY and ALL_PROXY; NO_PROXY names hosts to reach directly.",
        ),
        "proxy_auth": (
            "The proxy on the way to {host} asks for a user name and password.",
            "Put them into the proxy's address: http://user:password@proxy:port.",
        ),
        "certificate": (
            "The certificate of {host} is not trusted.",
            (
                "Name your own authority's PEM file in SSL_CERT_FILE or ca_file; or check the host name and today's "
                "date. A slim image may lack the package ca-certificates."
            ),
        ),
        "certificate_form": (
            "The certificate of {host}, or of its authority, is not in the form that Python 3.13 and newer insist on.",
            "Have it issued as RFC 5280 asks; or use HttpxTransport with a context without ssl.VERIFY_X509_STRICT.",
        ),
        "tls": (
            "No encrypted connection to {host} could be agreed on (TLS).",
            "Check whether the server speaks https at all on this port; a local server is often http://.",
        ),
        "reset": (
            "The connection to {host} was reset.",
            "Try again; if it persists, a proxy or firewall may be cutting long requests.",
        ),
        "closed_early": (
            "{host} closed the connection without an answer.",
            "Try again; if it persists, check that the base URL and port belong to an HTTP server.",
        ),
        "cut_off": (
            "The answer of {host} was cut off before its end.",
            "Try again; if it persists, a proxy may be cutting long answers.",
        ),
        "connection": ("The connection to {host} failed.", "Check the network, the base URL and the proxy settings."),
    },
    RequestTimeoutError: {
        "connect_timeout": (
            "No connection to {host} in time ({limits}).",
            "Check that the host is reachable from here; a firewall that drops packets looks like this.",
        ),
        "read_timeout": (
            "{host} did not send anything, or did not finish, in time ({limits}).",
            "Raise the timeout, or ask for a shorter answer.",
        ),
        "pool_timeout": (
            "All connections of this transport stayed busy.",
            "Close responses that are no longer read, or raise PoolLimits.connections.",
        ),
    },
    ProtocolError: {
        "malformed": (
            "What {host} sent is not an HTTP reply.",
            "Check that the base URL and port belong to the API, and whether it wants https.",
        ),
        "bad_encoding": (
            "The compressed answer of {host} could not be unpacked.",
            "Try again; if it persists, a proxy may be damaging compressed answers.",
        ),
        "too_large": (
            "The answer of {host} is larger than the limit.",
            "Check that the base URL belongs to the API, or raise the limit.",
        ),
    },
    ConfigurationError: {
        "bad_url": ("The address of the request cannot be used.", "Check the base URL: scheme, host name and port."),
        "client_closed": (
            "The transport was closed while, or before, the request ran.",
            "Keep the transport or client open until its last response has been read.",
        ),
    },
}
"""What happened and what to do next, by error class and `code`."""
CODES: Final = {code: kind for kind, texts in _TEXTS.items() for code in texts}
_MAYBE_PLAIN: Final[frozenset[str]] = frozenset({"closed_early", "connect_timeout", "reset", "tls"})
"""Symptoms of TLS with a server that speaks plain HTTP."""


def error_for(code: str, request: HttpRequest, *, detail: str = "") -> DragomanError:
    """The error with this code for this request."""
    kind = CODES[code]
    happened, next_step = _TEXTS[kind][code]
    host = request.host or "the server"
    message = happened.format(host=host, limits=_limits(request.timeout))
    if detail:
        message = f"{message[:-1]}: {detail}."
    if code == "refused" and is_loopback(host):
        next_step = "Start the server on this machine (Ollama: `ollama serve`), or correct the port in the base URL."
    if code in _MAYBE_PLAIN and is_loopback(host) and request.url.startswith("https:"):
        next_step = "A server on this machine usually speaks plain http: write http:// in the base URL. " + next_step
    if issubclass(kind, ProviderError):
        return kind(message, hint=next_step, code=code)
    return kind(message, hint=next_step)


def redirect_error(host: str, status: int, target: str) -> ProtocolError:
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


# --- from exceptions to codes -----------------------------------------------------------------------------------------

_NUMBERS: Final[dict[int, str]] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.ECONNABORTED: "reset",
    errno.EPIPE: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.ETIMEDOUT: "connect_timeout",
}

# By class name, since httpx2 may not be installed; looked up along the MRO, most specific first.
# The first code applies while connecting, the second afterwards.
_KINDS: Final[dict[str, tuple[str, str]]] = {
    "MalformedReplyError": ("malformed", "malformed"),
    "SSLCertVerificationError": ("certificate", "certificate"),
    "SSLEOFError": ("tls", "cut_off"),
    "SSLError": ("tls", "reset"),
    "EOFError": ("cut_off", "cut_off"),
    "gaierror": ("unknown_host", "unknown_host"),
    "UnicodeError": ("unknown_host", "bad_encoding"),
    "TimeoutError": ("connect_timeout", "read_timeout"),
    "ValueError": ("bad_encoding", "bad_encoding"),
    # httpx2
    "ProxyError": ("proxy", "proxy"),
    "PoolTimeout": ("pool_timeout", "pool_timeout"),
    "ConnectTimeout": ("connect_timeout", "connect_timeout"),
    "TimeoutException": ("read_timeout", "read_timeout"),
    "LocalProtocolError": ("bad_url", "bad_url"),
    "RemoteProtocolError": ("malformed", "malformed"),
    "StreamError": ("client_closed", "client_closed"),
}

# httpx2 has one class for several failures; its text distinguishes them.
_WORDS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "ProxyError": (("407", "proxy_auth"),),
    "RemoteProtocolError": (
        ("without sending a response", "closed_early"),
        ("incomplete", "cut_off"),
        ("closed connection", "cut_off"),
    ),
    "ConnectError": (("refused", "refused"),),
}

_CERTIFICATE_WORDS: Final = {
    "expired": "it has expired, or the clock of this machine is wrong",
    "not yet valid": "it is not valid yet, or the clock of this machine is wrong",
    "mismatch": "it is for another host name",
    "issuer": "it is not signed by an authority that this machine trusts",
    "self": "it is not signed by an authority that this machine trusts",
}

_FORM_CODES: Final = range(80, 95)
"""From X509_V_ERR_PATHLEN_INVALID_FOR_NON_CA to X509_V_ERR_EC_KEY_EXPLICIT_PARAMS in OpenSSL 3."""

_AT_THE_PROXY: Final[frozenset[str]] = frozenset(
    {"connect_timeout", "connection", "refused", "reset", "unknown_host", "unreachable"}
)
"""Failures that are the proxy's if they happen while connecting to one."""


def translate(error: Exception, request: HttpRequest, *, connecting: bool, proxied: bool = False) -> DragomanError:
    """Our error for an exception of a socket, TLS, the parser or httpx2."""
    cause: BaseException | None = error
    code: str | None = None
    detail = ""
    while cause is not None and code is None:  # httpx2 chains the system's error as the cause of its own
        code, detail = _classify(cause, connecting=connecting), _detail(cause)
        cause = cause.__cause__ or cause.__context__
    if code is None:
        code = "connection" if connecting else "reset"
    if proxied and connecting and code in _AT_THE_PROXY:
        code = "proxy"
    return error_for(code, request, detail=detail)


def _classify(error: BaseException, *, connecting: bool) -> str | None:
    if _is_about_form(error):
        return "certificate_form"
    names = [kind.__name__ for kind in type(error).__mro__]
    if getattr(error, "reason", "") == "UNEXPECTED_EOF_WHILE_READING":
        names.insert(0, "SSLEOFError")  # early releases of Python 3.11 raise a plain SSLError
    text = str(error).lower()
    for name in names:
        for words, code in _WORDS.get(name, ()):
            if words in text:
                return code
        if name in _KINDS:
            return _KINDS[name][0 if connecting else 1]
    if isinstance(error, OSError) and error.errno is not None:
        return _NUMBERS.get(error.errno)
    return None


def _detail(error: BaseException) -> str:
    if isinstance(error, MalformedReplyError):
        return str(error)
    reason = str(getattr(error, "verify_message", "")).lower()
    if _is_about_form(error):
        return reason
    return next((words for sign, words in _CERTIFICATE_WORDS.items() if sign in reason), "")


def _is_about_form(error: BaseException) -> bool:
    """Whether a certificate fails one of the checks that ssl.VERIFY_X509_STRICT adds; Python sets it since 3.13."""
    return getattr(error, "verify_code", 0) in _FORM_CODES
