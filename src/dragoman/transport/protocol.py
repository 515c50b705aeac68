"""What a transport is: one request out, one reply back in pieces, in two colours.

Owns: the values HttpRequest, Timeouts and PoolLimits; the protocols Transport and Response with their async twins.
Must not know: which HTTP library does the work, and what the bytes mean.

The rules that every transport keeps:

- `open` returns when the head of the reply is there. A redirect is an error: a key must not travel to another host.
- A response is an iterator over its body: decoded bytes, never empty, each piece as soon as it arrives.
- A body that ends before it is complete raises. Silence is never success.
- Whatever goes wrong is a ConnectionFailedError, RequestTimeoutError, ProtocolError or ConfigurationError. Its text
  names the host and nothing else of the address, and never a header: both may hold a key. Its `code` is one of
  `troubles.Code`.
- After the end, an error, or `close()`, the connection is free again or gone. Closing twice does no harm.
- A transport may be used by many threads (or tasks) at once; one response belongs to one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Final, Protocol, Self

from msgspec import Struct

from .addresses import host_of

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_TIMEOUTS",
    "MAX_BODY_BYTES",
    "AsyncResponse",
    "AsyncTransport",
    "HttpRequest",
    "PoolLimits",
    "Response",
    "Timeouts",
    "Transport",
]

MAX_BODY_BYTES: Final = 256 * 1024 * 1024
"""How much `read` takes in unless told otherwise: a reply that never ends must not fill the memory."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds; None means without end."""

    connect: float | None = 10.0
    """For a connection: name lookup, TCP and TLS together."""
    read: float | None = 600.0
    """For the head of the reply, and again between any two pieces of the body. A model that thinks sends nothing."""
    total: float | None = None
    """From the start of the request to the end of the body."""


class PoolLimits(Struct, frozen=True, kw_only=True):
    """How many connections a transport keeps."""

    connections: int = 1000
    """Requests under way at once; further ones wait."""
    wait: float | None = 60.0
    """Seconds that a request waits for its turn."""
    idle: int = 100
    """Connections kept open for reuse, for each host."""
    idle_seconds: float = 55.0
    """How long an idle connection is kept; common load balancers close theirs after 60 seconds."""


DEFAULT_TIMEOUTS: Final = Timeouts()
DEFAULT_LIMITS: Final = PoolLimits()


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One request. Its text form shows the host and sizes only: the rest may hold a key."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    timeout: Timeouts = DEFAULT_TIMEOUTS
    stream: bool = False
    """True: hand out pieces as they arrive. False: the reply is wanted whole, which some transports do at less cost;
    `open` may then return only when all of it is there."""

    @property
    def host(self) -> str:
        """The host name of the address, for logs and errors."""
        return host_of(self.url)

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.host}, {len(self.headers)} headers, {len(self.body)} bytes)"


class Response(Protocol):
    """A reply; an iterator over its body and a context manager."""

    @property
    def status(self) -> int:
        """The status code: never a redirect."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, names in lower case; several of one name are joined with a comma."""
        ...

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes:
        """The next piece of the body, as soon as it is there."""
        ...

    def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The rest of the body. ProtocolError if it is longer than the limit."""
        ...

    def close(self) -> None:
        """Give up the rest of the body and free the connection."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class AsyncResponse(Protocol):
    """A reply on an event loop; an async iterator over its body and an async context manager."""

    @property
    def status(self) -> int:
        """The status code: never a redirect."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, names in lower case; several of one name are joined with a comma."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes:
        """The next piece of the body, as soon as it is there."""
        ...

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The rest of the body. ProtocolError if it is longer than the limit."""
        ...

    async def aclose(self) -> None:
        """Give up the rest of the body and free the connection."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Transport(Protocol):
    """Sends requests and keeps the connections; a context manager."""

    def open(self, request: HttpRequest) -> Response:
        """Send the request and wait for the head of the reply."""
        ...

    def close(self) -> None:
        """Close all connections. Requests after that raise ConfigurationError."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class AsyncTransport(Protocol):
    """Sends requests on an event loop and keeps the connections; an async context manager."""

    async def open(self, request: HttpRequest) -> AsyncResponse:
        """Send the request and wait for the head of the reply."""
        ...

    async def aclose(self) -> None:
        """Close all connections. Requests after that raise ConfigurationError."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
