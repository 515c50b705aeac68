"""What a transport is: one request out, one reply back in pieces.

Both colours have the same methods. Those of a transport for event loops await; those of a transport for plain programs
are `async def` too, but block and return without suspending (see `dragoman._stepping`).

The rules that every transport keeps:

- `open` returns when the head of the reply is there. A redirect is an error: a key must not travel to another host.
- `next` gives decoded bytes, each piece as soon as it arrives; empty bytes mean the end.
- A body that ends before it is complete raises. Silence is never success.
- Whatever goes wrong is a ConnectionFailedError, RequestTimeoutError, ProtocolError or ConfigurationError. Its text
  names the host and nothing else of the address, and never a header: both may hold a key. Its `code` is one of
  `errors.CODES`, or `redirect`.
- After the end, an error, an interrupted read, or `aclose()`, the connection is free again or gone. Closing twice does
  no harm.
- A transport may be used by many threads (or tasks) at once; one response belongs to one of them.
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
"""How much `read` takes in by default: a reply that never ends must not fill the memory."""


class Timeouts(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait, in seconds; None means without end."""

    connect: NotNegative | None = 10.0
    """For a connection: name lookup, TCP and TLS together."""
    read: NotNegative | None = 180.0
    """For the head of the reply, and again between any two pieces of the body. A model that thinks sends nothing."""
    total: NotNegative | None = None
    """From the start of the request to the end of the body."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) == math.inf:  # which no socket takes for a limit
                force_setattr(self, name, None)


class PoolLimits(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    """How many connections a transport keeps."""

    connections: Positive = 1000
    """Requests under way at once; further ones wait."""
    wait: NotNegative | None = 60.0
    """Seconds that a request waits for its turn."""
    idle: Count = 100
    """Connections kept open for reuse, for each host."""
    idle_seconds: NotNegative = 55.0
    """How long an idle connection is kept; common load balancers close theirs after 60 seconds."""


DEFAULT_LIMITS: Final = PoolLimits()


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One request. Its text form shows the host and sizes only: the rest may hold a key."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    timeout: Timeouts = Timeouts()

    @property
    def host(self) -> str:
        """The host name of the address, for logs and errors."""
        return host_of(self.url)

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.host}, {len(self.headers)} headers, {len(self.body)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # or rich would show every field, the key among them
        return [("method", self.method), ("host", self.host)]


class Response(ABC):
    """A reply whose head has arrived. Whoever writes one brings `next` and `aclose`."""

    def __init__(self, request: HttpRequest, status: int, headers: Mapping[str, str]) -> None:
        self.request: HttpRequest = request
        self.status: int = status
        """Never a redirect."""
        self.headers: Mapping[str, str] = headers
        """Names in lower case; several of one name are joined with a comma."""

    @abstractmethod
    async def next(self) -> bytes:
        """The next piece of the body, as soon as it is there; empty at the end."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give up the rest of the body and free the connection."""

    async def finish(self) -> None:
        """What was read says that this is all: close, and where that is soon possible keep the connection."""
        await self.aclose()

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The rest of the body, after which the response is closed. ProtocolError if it is longer than the limit."""
        return await self.read_rest([], limit)

    async def read_rest(self, pieces: list[bytes], limit: int) -> bytes:
        """`read`, for whoever has taken some pieces already: all of it is put together once."""
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
    """Sends requests and keeps the connections. Whoever writes one brings `open` and `aclose`."""

    blocking: bool | None = None
    """True: the methods block, for plain programs. False: they await, for event loops. None: they do neither."""

    @abstractmethod
    async def open(self, request: HttpRequest) -> Response:
        """Send the request and wait for the head of the reply."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections. Requests after that raise ConfigurationError."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """`aclose` for a plain program, as is `with` for `async with`; not for a transport that awaits."""
        step(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


# --- headers ---------------------------------------------------------------------------------------------------------

_KEY_HEADERS: Final = ("auth", "cookie", "key", "secret", "token")
_SCHEMES: Final = ("basic", "bearer")


def keys_in(headers: Mapping[str, str]) -> Iterator[str]:
    """The values of all headers that may carry a key, without the word before it (`Bearer`)."""
    for name, value in headers.items():
        if any(word in name.lower() for word in _KEY_HEADERS):
            scheme, blank, rest = value.partition(" ")
            yield rest if blank and scheme.lower() in _SCHEMES else value


# --- bodies ----------------------------------------------------------------------------------------------------------


def form_with_file(fields: Mapping[str, str], name: str, mime_type: str, data: bytes) -> tuple[str, bytes]:
    """The content type and the body of a form of these fields, and of one file in the field `file`."""
    mark = f"dragoman-{os.urandom(16).hex()}"
    said = "content-disposition: form-data; name="
    parts = [f'--{mark}\r\n{said}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    safe = "".join(each if each.isprintable() and each not in '"\\' else "_" for each in name) or "file"
    parts += [f'--{mark}\r\n{said}"file"; filename="{safe}"\r\n', f"content-type: {mime_type}\r\n\r\n"]
    return f"multipart/form-data; boundary={mark}", "".join(parts).encode() + data + f"\r\n--{mark}--\r\n".encode()
