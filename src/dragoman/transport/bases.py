"""The common part of responses and transports, for whoever writes another one.

Owns: context managers, reading whole bodies, the checks before a request is sent and after a head has arrived.
Must not know: which HTTP library does the work.

A new transport derives from these four classes and fills in the abstract methods; the protocols ask for nothing else.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from dragoman._version import __version__
from dragoman.errors import ConfigurationError

from .addresses import host_of
from .protocol import MAX_BODY_BYTES, HttpRequest, Response
from .troubles import redirected, trouble

__all__ = [
    "USER_AGENT",
    "BaseAsyncResponse",
    "BaseAsyncTransport",
    "BaseResponse",
    "BaseTransport",
    "Reading",
    "check_head",
    "check_request",
    "lower_case",
]

USER_AGENT: Final = f"dragoman/{__version__}"

# The strictest reading of an address, so that all libraries find the same host in it. No user name, no backslash.
_URL: Final = re.compile(
    r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9._-]*)(?::[0-9]{1,5})?(?:[/?][!-\[\]-~]*)?"
).fullmatch
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
# Visible characters of ASCII, with blanks and tabs between them but not around them.
_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t]*[!-~])*)?").fullmatch


def check_request(request: HttpRequest) -> None:
    """Refuse addresses and headers that cannot be sent. Neither is shown: they may hold a key."""
    if _URL(request.url) is None:
        raise trouble("bad_url", request)
    for name, value in request.headers.items():
        if _NAME(name) is None:
            message = f"A header cannot have the name {name!r}."
            raise ConfigurationError(message, hint="Use letters, digits and hyphens only.")
        if _VALUE(value) is None:
            message = f"The value of the header {name!r} has a line break, an outer blank or a character beyond ASCII."
            hint = "If it holds an API key, copy the key again; one that was read from a file needs .strip()."
            raise ConfigurationError(message, hint=hint)


def check_head(request: HttpRequest, status: int, headers: Mapping[str, str]) -> None:
    """Refuse a redirect, and a proxy that wants a password."""
    if status == 407:
        raise trouble("proxy_auth", request)
    if 300 <= status < 400:
        raise redirected(request.host, status, host_of(headers.get("location", "")))


def lower_case(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by their names in lower case; those of one name joined with a comma, as HTTP allows."""
    pairs = [(name.lower(), value) for name, value in headers]
    result = dict(pairs)
    if len(result) < len(pairs):
        result = {}
        for name, value in pairs:
            result[name] = f"{result[name]}, {value}" if name in result else value
    return result


class Reading:
    """What a response can do once it can give its pieces and be closed."""

    __slots__ = ()
    request: HttpRequest

    def __next__(self) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            for piece in self:
                size += len(piece)
                if size > limit:
                    raise trouble("too_large", self.request, detail=f"{limit} bytes")
                pieces.append(piece)
        finally:
            self.close()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class BaseResponse(Reading, ABC):
    """A response but for two methods."""

    def __init__(self, request: HttpRequest, status: int, headers: Mapping[str, str]) -> None:
        self.request: HttpRequest = request
        self.status: int = status
        self.headers: Mapping[str, str] = headers

    @abstractmethod
    def __next__(self) -> bytes: ...

    @abstractmethod
    def close(self) -> None: ...


class BaseAsyncResponse(ABC):
    """An async response but for two methods."""

    def __init__(self, request: HttpRequest, status: int, headers: Mapping[str, str]) -> None:
        self.request: HttpRequest = request
        self.status: int = status
        self.headers: Mapping[str, str] = headers

    @abstractmethod
    async def __anext__(self) -> bytes: ...

    @abstractmethod
    async def aclose(self) -> None: ...

    def __aiter__(self) -> Self:
        return self

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in self:
                size += len(piece)
                if size > limit:
                    raise trouble("too_large", self.request, detail=f"{limit} bytes")
                pieces.append(piece)
        finally:
            await self.aclose()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class BaseTransport(ABC):
    """A transport but for two methods."""

    @abstractmethod
    def open(self, request: HttpRequest) -> Response: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class BaseAsyncTransport(ABC):
    """An async transport but for two methods."""

    @abstractmethod
    async def open(self, request: HttpRequest) -> BaseAsyncResponse: ...

    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
