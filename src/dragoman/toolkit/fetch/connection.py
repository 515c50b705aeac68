"""One request to one address that was checked.

Owns: connecting to exactly that address, TLS for the host's name, sending a GET, reading the reply under limits.
Must not know: where the address comes from, and what the content means.

It speaks through no proxy: a proxy would look the name up once more and go wherever it likes.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dragoman.errors import ToolExecutionError, ToolTimeoutError
from dragoman.transport.decoding import Unpacker, unpacker
from dragoman.transport.errors import MalformedReplyError
from dragoman.transport.http1 import ReplyReader, request_head
from dragoman.transport.protocol import USER_AGENT, HttpRequest

from .targets import Target

__all__ = ["Limits", "Page", "get"]

_READ: Final = 64 * 1024
_SLICE: Final = 4 * 1024
"""What is unpacked at once: four kilobytes can become four megabytes, and a page is not asked how large it is."""
_POLL_SECONDS: Final = 0.25
_ENCODINGS: Final = ("", "identity", "gzip", "x-gzip", "deflate")
_ACCEPT: Final = "text/html, text/plain, text/markdown, application/json, image/*;q=0.8, */*;q=0.5"


class Limits(Struct, frozen=True, kw_only=True):
    """How long to wait, and for how much."""

    deadline: float
    """On the clock of `time.monotonic`."""
    max_bytes: int
    check: Callable[[], None]
    """Raises if nobody waits any more."""


class Page(Struct, frozen=True, kw_only=True):
    """A reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool
    """Whether the body is longer than what was read of it."""


def get(target: Target, addresses: Sequence[str], tls: Callable[[], ssl.SSLContext], limits: Limits) -> Page:
    """Ask the first of these addresses that answers. Raises ToolError."""
    sock: socket.socket | None = None
    try:
        sock = _connected(target, addresses, limits)
        if target.scheme == "https":
            sock.settimeout(_left(limits))
            sock = tls().wrap_socket(sock, server_hostname=target.host, suppress_ragged_eofs=False)
        return _exchange(sock, target, limits)
    except ssl.SSLCertVerificationError as error:
        raise _failed(target, f"its certificate is not trusted ({error.verify_message})") from error
    except TimeoutError as error:
        raise ToolTimeoutError(f"{target.host} did not answer in time.", hint="") from error
    except EOFError as error:
        raise _failed(target, "the answer was cut off") from error
    except MalformedReplyError as error:
        raise _failed(target, f"what it sent is not an HTTP reply ({error})") from error
    except ValueError as error:
        raise _failed(target, "the compressed answer could not be unpacked") from error
    except OSError as error:
        raise _failed(target, error.strerror or "the connection failed") from error
    finally:
        if sock is not None:
            sock.close()


def _failed(target: Target, why: str) -> ToolExecutionError:
    return ToolExecutionError(f"cannot fetch from {target.host}: {why}.")


def _left(limits: Limits) -> float:
    left = limits.deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connected(target: Target, addresses: Sequence[str], limits: Limits) -> socket.socket:
    problem: OSError = OSError("no address")
    for number, address in enumerate(addresses):
        limits.check()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            # One address that does not answer must not take the time of the others.
            sock.settimeout(_left(limits) / (len(addresses) - number))
            sock.connect((address, target.port))
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def _exchange(sock: socket.socket, target: Target, limits: Limits) -> Page:
    request = HttpRequest(url=target.url, method="GET")
    usual = {
        "host": target.authority,
        "user-agent": USER_AGENT,
        "accept": _ACCEPT,
        "accept-encoding": "gzip, deflate",
        "connection": "close",
    }
    sock.settimeout(_left(limits))
    sock.sendall(request_head(request, target=target.path, usual=usual))
    reader = ReplyReader("GET")
    first = b""
    while not reader.head_complete:
        data = _received(sock, limits)
        if not data:
            reader.end()
        first = reader.feed(data)
    encoding = reader.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise _failed(target, f"it sent a content encoding that nobody asked for ({encoding[:40]})")
    body, cut = _body(sock, reader, first, unpacker(encoding), limits)
    return Page(status=reader.status, headers=reader.headers, body=body, cut=cut)


def _body(
    sock: socket.socket, reader: ReplyReader, first: bytes, packed: Unpacker | None, limits: Limits
) -> tuple[bytes, bool]:
    body = bytearray()
    piece = first
    while True:
        for at in range(0, len(piece), _SLICE):
            part = piece[at : at + _SLICE]
            body += part if packed is None else packed.feed(part)
            if len(body) > limits.max_bytes:
                return bytes(body[: limits.max_bytes]), True
        if reader.complete:
            break
        data = _received(sock, limits)
        if not data:
            reader.end()
        piece = reader.feed(data) if data else b""
    if packed is not None:
        packed.finish()
    return bytes(body), False


def _received(sock: socket.socket, limits: Limits) -> bytes:
    """Some bytes, or none at the end. Looks up now and then whether anybody still waits."""
    while True:
        limits.check()
        sock.settimeout(min(_left(limits), _POLL_SECONDS))
        try:
            return sock.recv(_READ)
        except TimeoutError:
            _left(limits)
