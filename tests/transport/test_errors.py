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
    ("error", "connecting", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, f"no such name {URL}"), True, "unknown_host"),
        (UnicodeError("label too long"), True, "unknown_host"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True, "refused"),
        (OSError(errno.ENETUNREACH, "unreachable"), True, "unreachable"),
        (OSError(errno.EHOSTUNREACH, "unreachable"), True, "unreachable"),
        (OSError(errno.EMFILE, "too many open files"), True, "connection"),
        (TimeoutError(), True, "connect_timeout"),
        (TimeoutError(), False, "read_timeout"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), False, "reset"),
        (BrokenPipeError(errno.EPIPE, "pipe"), False, "reset"),
        (OSError("?"), False, "reset"),
        (EOFError(), False, "cut_off"),
        (ssl.SSLEOFError(), False, "cut_off"),
        (ssl.SSLEOFError(), True, "tls"),
        (ssl.SSLError(), True, "tls"),
        (ssl.SSLError(), False, "reset"),
        (certificate_error("unable to get local issuer certificate"), True, "certificate"),
        (ValueError("damaged"), False, "bad_encoding"),
    ],
)
def test_sockets(error: Exception, connecting: bool, code: str) -> None:
    ours = translate(error, REQUEST, connecting=connecting)
    assert code_of(ours) == code
    assert "sesame" not in str(ours)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("certificate has expired", "it has expired"),
        ("certificate is not yet valid", "it is not valid yet"),
        ("IP address mismatch, certificate is not valid for '127.0.0.1'.", "made out for another host name"),
        ("self-signed certificate in certificate chain", "nobody that this machine trusts"),
        ("something new", "The certificate of api.test is not trusted."),
    ],
)
def test_certificates(words: str, shown: str) -> None:
    assert shown in str(translate(certificate_error(words), REQUEST, connecting=True))


def test_what_goes_wrong_at_the_proxy_is_said_of_the_proxy() -> None:
    for error in (ConnectionRefusedError(errno.ECONNREFUSED, ""), socket.gaierror(), TimeoutError()):
        assert code_of(translate(error, REQUEST, connecting=True, proxied=True)) == "proxy"
    assert code_of(translate(ssl.SSLError(), REQUEST, connecting=True, proxied=True)) == "tls"


# --- httpx2 ----------------------------------------------------------------------------------------------------------


def chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reading", "code"),
    [
        (chained(httpx2.ConnectError("?"), socket.gaierror(socket.EAI_NONAME, "?")), False, "unknown_host"),
        (chained(httpx2.ConnectError("?"), OSError(errno.ENETUNREACH, "?")), False, "unreachable"),
        (httpx2.ConnectError("[Errno 111] Connection refused"), False, "refused"),
        (httpx2.ConnectError("All connection attempts failed"), False, "connection"),
        (httpx2.ReadError(""), True, "reset"),
        (chained(httpx2.ReadError(""), ssl.SSLEOFError()), True, "cut_off"),
        (httpx2.WriteTimeout(""), False, "read_timeout"),
        (httpx2.RemoteProtocolError("Server disconnected without sending a response."), False, "closed_early"),
        (httpx2.RemoteProtocolError("illegal status line"), False, "malformed"),
        (httpx2.StreamClosed(), True, None),
        (httpx2.ProxyError("403 Forbidden"), False, "proxy"),
        (httpx2.ProxyError("407 Proxy Authentication Required"), False, "proxy_auth"),
    ],
)
def test_httpx2(error: Exception, reading: bool, code: str | None) -> None:
    assert code_of(translate(error, REQUEST, connecting=not reading)) == code
