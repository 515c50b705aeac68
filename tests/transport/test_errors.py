"""Each way in which a library reports a failure leads to the right text; for what cannot be made to happen here."""

from __future__ import annotations

import errno
import socket
import ssl

import httpx2
import pytest

from dragoman.errors import ConfigurationError, DragomanError, ProviderError
from dragoman.transport import HttpRequest
from dragoman.transport.errors import CODES, error_for, translate

URL = "https://api.test/v1/secret?key=sesame"
REQUEST = HttpRequest(url=URL, headers={"x-api-key": "sesame"})


def code_of(error: DragomanError) -> str | None:
    return error.code if isinstance(error, ProviderError) else None


@pytest.mark.parametrize("code", CODES)
def test_every_failure_says_what_happened_and_what_to_do(code: str) -> None:
    error = error_for(code, REQUEST)
    assert error.message.endswith(".")
    assert error.hint.endswith((".", "port."))
    assert "sesame" not in str(error)
    assert "/v1" not in str(error)
    if isinstance(error, ProviderError):
        assert error.code == code
        assert "api.test" in error.message or code == "pool_timeout"
    else:
        assert isinstance(error, ConfigurationError)
    assert str(error_for(code, REQUEST, detail="so it was")).count("so it was") == 1


# --- sockets ---------------------------------------------------------------------------------------------------------


def certificate_error(words: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = words
    return error


@pytest.mark.parametrize(
    ("error", "how", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, f"no such name {URL}"), "connecting", "unknown_host"),
        (UnicodeError("label too long"), "connecting", "unknown_host"),
        (OSError(errno.ENETUNREACH, "unreachable"), "connecting", "unreachable"),
        (OSError(errno.EHOSTUNREACH, "unreachable"), "connecting", "unreachable"),
        (OSError(errno.EMFILE, "too many open files"), "connecting", "connection"),
        (BrokenPipeError(errno.EPIPE, "pipe"), "reading", "reset"),
        (OSError("?"), "reading", "reset"),
        (ssl.SSLEOFError(), "connecting", "tls"),
        # What goes wrong at the proxy is said of the proxy.
        (socket.gaierror(), "proxied", "proxy"),
        (TimeoutError(), "proxied", "proxy"),
        (ssl.SSLError(), "proxied", "tls"),
    ],
)
def test_sockets(error: Exception, how: str, code: str) -> None:
    ours = translate(error, REQUEST, connecting=how != "reading", proxied=how == "proxied")
    assert code_of(ours) == code
    assert "sesame" not in str(ours)


def test_certificates() -> None:
    for words, shown in {
        "certificate has expired": "it has expired",
        "certificate is not yet valid": "it is not valid yet",
        "IP address mismatch, certificate is not valid for '127.0.0.1'.": "is for another host name",
        "self-signed certificate in certificate chain": "not signed by an authority",
        "something new": "The certificate of api.test is not trusted.",
    }.items():
        ours = translate(certificate_error(words), REQUEST, connecting=True)
        assert code_of(ours) == "certificate"
        assert shown in str(ours)


# --- httpx2 ----------------------------------------------------------------------------------------------------------


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reading", "code"),
    [
        (chained(httpx2.ConnectError("?"), socket.gaierror(socket.EAI_NONAME, "?")), False, "unknown_host"),
        (chained(httpx2.ConnectError("?"), OSError(errno.ENETUNREACH, "?")), False, "unreachable"),
        (httpx2.ConnectError("All connection attempts failed"), False, "connection"),
        (chained(httpx2.ReadError(""), ssl.SSLEOFError()), True, "cut_off"),
        (httpx2.WriteTimeout(""), False, "read_timeout"),
        (httpx2.RemoteProtocolError("Server disconnected without sending a response."), False, "closed_early"),
        (httpx2.StreamClosed(), True, None),
        (httpx2.ProxyError("403 Forbidden"), False, "proxy"),
        (httpx2.ProxyError("407 Proxy Authentication Required"), False, "proxy_auth"),
    ],
)
def test_httpx2(error: Exception, reading: bool, code: str | None) -> None:
    assert code_of(translate(error, REQUEST, connecting=not reading)) == code
