"""One set of tests for every transport in both colours: each test is written plainly and runs on all of them.

A client of a test has two methods, `open` and `close`. A transport for plain programs is stepped; one for event
loops runs on a loop that belongs to the client. At the end a client of a test looks for tasks that were left behind.
"""

from __future__ import annotations

import asyncio
import ssl
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

import httpx2
import pytest

from dragoman._stepping import step
from dragoman.errors import ConfigurationError, DragomanError, ProtocolError, ProviderError
from dragoman.transport import AsyncioTransport, HttpRequest, Response, SocketTransport, Timeouts, Transport
from dragoman.transport.errors import CODES
from dragoman.transport.httpx_adapter import HttpxTransport
from dragoman.transport.protocol import DEFAULT_LIMITS

T = TypeVar("T")

QUICK = Timeouts(connect=20.0, read=20.0)
"""Long enough for a busy machine, short enough that a fault does not hang the tests."""


SECRET = "sesame-open"


def failing(code: str) -> AbstractContextManager[pytest.ExceptionInfo[Any]]:
    """Expects the error with this code, empty where it has none, with a next step.

    Neither its text nor anything that a traceback shows holds a key, which may be in the address or in a header.
    """

    def check(error: DragomanError) -> bool:
        kind = CODES.get(code, ProtocolError if code == "redirect" else ConfigurationError)
        assert isinstance(error, kind), repr(error)
        assert not isinstance(error, ProviderError) or error.code == code, repr(error)
        assert error.hint
        assert error.__cause__ is None
        assert error.__context__ is None
        shown = "".join(traceback.format_exception_only(error)) + repr(vars(error))
        assert SECRET not in shown
        assert "/v1/secret" not in shown
        return True

    return pytest.raises(DragomanError, check=check)


class Reply:
    """A response in either colour, with plain methods."""

    def __init__(self, response: Response, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.response = response
        self._run = run
        self.status: int = response.status
        self.headers = response.headers

    def piece(self) -> bytes | None:
        """The next piece, or None at the end."""
        return self._run(self.response.next()) or None

    def pieces(self) -> list[bytes]:
        return list(iter(self.piece, None))

    def read(self, *limit: int) -> bytes:
        return self._run(self.response.read(*limit))

    def close(self) -> None:
        self._run(self.response.aclose())

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class Client:
    """A transport in either colour, with plain methods; a context manager."""

    def __init__(self, transport: Transport, *, plain: bool | None = None, reuses: bool = True) -> None:
        self.reuses = reuses
        self.transport: Any = transport
        self.plain: bool = self.transport.blocking if plain is None else plain
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return step(work) if self.plain else self._runner.run(work)

    def open(self, url: str, **fields: Any) -> Reply:
        request = HttpRequest(**{"url": url, "timeout": QUICK, **fields})
        return Reply(self.run(self.transport.open(request)), self.run)

    def close(self) -> None:
        self.run(self.transport.aclose())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.close()
            if not self.plain:
                self.run(self._look_for_tasks())
        finally:
            self._runner.close()

    async def _look_for_tasks(self) -> None:
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks left behind: {left}"


class Kind:
    """A transport to test."""

    def __init__(self, name: str, make: Callable[..., Transport], *, plain: bool, reuses: bool = True) -> None:
        self._name = name
        self._make = make
        self.plain = plain
        self.reuses = reuses
        """Whether a connection serves more than one request."""

    def __repr__(self) -> str:
        return self._name

    def client(self, **options: Any) -> Client:
        return Client(self._make(**options), reuses=self.reuses)


def _on_httpx(make: type[httpx2.Client | httpx2.AsyncClient], **options: Any) -> HttpxTransport:
    """On a client that uses no connection twice, with the options of our own transports as far as it has them."""
    connections = options.get("limits", DEFAULT_LIMITS).connections
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=0)
    tls = ssl.create_default_context(cafile=options.get("ca_file"))
    return HttpxTransport(make(limits=limits, verify=tls, proxy=options.get("proxy"), trust_env=False))


KINDS = [
    Kind("SocketTransport", SocketTransport, plain=True),
    Kind("AsyncioTransport", AsyncioTransport, plain=False),
    Kind("HttpxTransport", partial(_on_httpx, httpx2.Client), plain=True, reuses=False),
    Kind("AsyncHttpxTransport", partial(_on_httpx, httpx2.AsyncClient), plain=False, reuses=False),
]
OWN_KINDS = KINDS[:2]
