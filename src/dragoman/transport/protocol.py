"""The transport interface: send a request, receive the response in pieces.

Sync and async transports have the same methods. Async ones await; sync ones are `async def` too, but block and return
without suspending (see `dragoman._stepping`).

The rules for every transport:

- `open` returns when the response head has arrived. A redirect is an error: a key must not be sent to another host.
- `next` returns decoded bytes, each piece as soon as it arrives; empty bytes mean the end.
- A body that ends before it is complete raises.
- Failures are ConnectionFailedError, RequestTimeoutError, ProtocolError or ConfigurationError. Their text contains only
  the host of the URL, and no header: both may contain a key. Their `code` is one of `errors.CODES`, or `redirect`.
- After the end, an error, an interrupted read or `aclose()`, the connection is released or closed. Closing twice is
  allowed.
- Many threads (or tasks) may share a transport; a response belongs to one of them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import force_setattr

from dragoman._checks import CheckedMeta, Count, NotNegative, Positive
from dragoman._stepping import step
from dragoman._version import __version__

from .addresses import host_of
from .errors import error_for

USER_AGENT: Final = f"dragoman/{__version__}"

MAX_BODY_BYTES: Final = 256 * 1024 * 1024
"""The default limit of `read`: an endless response must not fill the memory."""


class Timeouts(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts in seconds; None: no limit."""

    connect: NotNegative | None = 10.0
    """To connect: name lookup, TCP and TLS together."""
    read: NotNegative | None = 180.0
    """For the response head, and between two pieces of the body. A thinking model sends nothing for a while."""
    total: NotNegative | None = None
    """From the start of the request to the end of the body."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) == math.inf:  # sockets do not accept it
                force_setattr(self, name, None)


class PoolLimits(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    """The limits of a connection pool."""

    connections: Positive = 1000
    """Concurrent requests; further ones wait."""
    wait: NotNegative | None = 60.0
    """How many seconds a request waits for a connection."""
    idle: Count = 100
    """Idle connections kept per host."""
    idle_seconds: NotNegative = 55.0
    """How long an idle connection is kept; many load balancers close theirs after 60 seconds."""


DEFAULT_LIMITS: Final = PoolLimits()


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One request. Its repr shows only the host and sizes: the rest may contain a key."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    timeout: Timeouts = Timeouts()

    @property
    def host(self) -> str:
        """The host name of the URL, for logs and errors."""
        return host_of(self.url)

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.host}, {len(self.headers)} headers, {len(self.body)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # else rich would show every field, including the key
        return [("method", self.method), ("host", self.host)]


class Response(ABC):
    """A response whose head has arrived. Subclasses implement `next` and `aclose`."""

    def __init__(self, request: HttpRequest, status: int, headers: Mapping[str, str]) -> None:
        self.request: HttpRequest = request
        self.status: int = status
        """Never a redirect."""
        self.headers: Mapping[str, str] = headers
        """Names in lower case; repeated headers are joined with a comma."""

    @abstractmethod
    async def next(self) -> bytes:
        """The next piece of the body, as soon as it arrives; empty at the end."""

    @abstractmethod
    async def aclose(self) -> None:
        """Discard the rest of the body and release the connection."""

    async def finish(self) -> None:
        """Close after the caller has all it needs; keeps the connection if the body ends at once."""
        await self.aclose()

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The rest of the body; then the response is closed. ProtocolError if it is longer than the limit."""
        return await self.read_rest([], limit)

    async def read_rest(self, pieces: list[bytes], limit: int) -> bytes:
        """`read` after some pieces were read already: returns all of them joined."""
        size = sum(map(len, pieces))
        try:
            while piece := await self.next():
                size += len(piece)
                if size > limit:
                    raise error_for("too_large", self.request)
                pieces.append(piece)
        finally:
            await self.aclose()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Transport(ABC):
    """Sends requests and keeps connections. Subclasses implement `open` and `aclose`."""

    blocking: bool | None = None
    """True: the methods block (sync). False: they await (async). None: they do neither."""

    @abstractmethod
    async def open(self, request: HttpRequest) -> Response:
        """Send the request and wait for the response head."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections. Requests after that raise ConfigurationError."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """`aclose` for sync transports."""
        step(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


# --- headers ---------------------------------------------------------------------------------------------------------

_KEY_HEADERS: Final = ("auth", "cookie", "key", "secret", "token")
_SCHEMES: Final = ("basic", "bearer")


def keys_in(headers: Mapping[str, str]) -> Iterator[str]:
    """The values of all headers that may contain a key, without a scheme such as `Bearer`."""
    for name, value in headers.items():
        if any(word in name.lower() for word in _KEY_HEADERS):
            scheme, blank, rest = value.partition(" ")
            yield rest if blank and scheme.lower() in _SCHEMES else value


# --- bodies ----------------------------------------------------------------------------------------------------------


def form_with_file(fields: Mapping[str, str], name: str, mime_type: str, data: bytes) -> tuple[str, bytes]:
    """The content type and body of a multipart form with these fields and one file in the field `file`."""
    boundary = f"dragoman-{os.urandom(16).hex()}"
    head = f"--{boundary}\r\ncontent-disposition: form-data; name="
    parts = [f'{head}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    safe = "".join(each if each.isprintable() and each not in '"\\' else "_" for each in name) or "file"
    parts.append(f'{head}"file"; filename="{safe}"\r\ncontent-type: {mime_type}\r\n\r\n')
    body = "".join(parts).encode() + data + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body
