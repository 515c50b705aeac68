"""What the errors of pyreqwest mean.

Owns: the words by which they are known.
Must not know: how requests are made.
"""

from __future__ import annotations

from typing import Final

from pyreqwest.exceptions import BuilderError, ClientClosedError, DetailedPyreqwestError, PoolTimeoutError
from pyreqwest.exceptions import RequestTimeoutError as PyreqwestTimeoutError

from dragoman.errors import DragomanError

from .protocol import HttpRequest
from .troubles import Code, trouble

__all__ = ["causes_of", "failure"]

# The first words that are found decide. What the words are was found out by making each of these things happen.
_WORDS: Final[tuple[tuple[str, Code, str], ...]] = (
    ("tunnel error: proxy authorization required", "proxy_auth", ""),
    ("tunnel error", "proxy", ""),
    ("socks", "proxy", ""),
    ("resolving dns", "unknown_host", ""),
    ("dns error", "unknown_host", ""),
    ("not valid for name", "certificate", "it is made out for another host name"),
    ("certificate expired", "certificate", "it has expired, or the clock of this machine is wrong"),
    ("certificate not valid yet", "certificate", "it is not valid yet, or the clock of this machine is wrong"),
    ("unknownissuer", "certificate", "nobody that this machine trusts has signed it"),
    ("certificate", "certificate", ""),
    ("received fatal alert", "tls", ""),
    ("corrupt message", "tls", ""),
    ("handshake", "tls", ""),
    ("connection refused", "refused", ""),
    ("unreachable", "unreachable", ""),
    ("no route to host", "unreachable", ""),
    ("connection reset", "reset", ""),
    ("broken pipe", "reset", ""),
    ("connection closed before message completed", "closed_early", ""),
    ("before message length reached", "cut_off", ""),
    ("did not finish", "cut_off", ""),
    ("unexpected end of file", "cut_off", ""),
    ("unexpected eof", "cut_off", ""),
    ("message head is too large", "malformed", "the head of the reply is too large"),
    ("chunk", "malformed", "a chunk of the body is not well-formed"),
    ("parsed", "malformed", ""),
    ("client error (connect)", "connection", ""),
    ("error reading a body from connection", "reset", ""),
    ("body error", "bad_encoding", ""),
)


def causes_of(error: Exception) -> str:
    """The texts of the causes, but for those that repeat the URL."""
    causes = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    return "\n".join(cause["message"] for cause in causes or () if "for url (" not in cause["message"]).lower()


def failure(error: Exception, request: HttpRequest, *, proxied: bool) -> DragomanError:
    """Our error for what pyreqwest raised."""
    causes = causes_of(error)
    if isinstance(error, ClientClosedError):
        return trouble("client_closed", request)
    if isinstance(error, PoolTimeoutError):
        return trouble("pool_timeout", request)
    if isinstance(error, PyreqwestTimeoutError):
        return trouble("connect_timeout" if "(connect)" in causes else "read_timeout", request)
    if isinstance(error, BuilderError | ValueError):
        return trouble("bad_url", request)
    for words, code, detail in _WORDS:
        if words in causes:
            at_proxy = proxied and code in ("refused", "unreachable", "connection") and "(connect)" in causes
            return trouble("proxy" if at_proxy else code, request, detail=detail)
    return trouble("connection", request)
