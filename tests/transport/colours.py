"""One set of tests for every transport in both colours: each test is written plainly and runs on all of them.

A client of a test has two methods, `open` and `close`; those of an async transport run on an event loop that belongs to
the client. At the end a client of a test looks for tasks that were left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dragoman.transport.asyncio_transport import AsyncioTransport
from dragoman.transport.decoding import accepted_encodings
from dragoman.transport.httpx2_transport import AsyncHttpx2Transport, Httpx2Transport
from dragoman.transport.protocol import AsyncResponse, AsyncTransport, HttpRequest, Response, Timeouts, Transport
from dragoman.transport.pyreqwest_transport import AsyncPyreqwestTransport, PyreqwestTransport
from dragoman.transport.socket_transport import SocketTransport

T = TypeVar("T")

QUICK = Timeouts(connect=20.0, read=20.0)
"""Long enough for a busy machine, short enough that a fault does not hang the tests."""


class Reply:
    """A response in either colour, with plain methods."""

    def __init__(self, response: Response | AsyncResponse, run: Callable[[Awaitable[T]], T]) -> None:
        self._response: Any = response
        self._run = run
        self._plain = hasattr(response, "__next__")
        self.status: int = response.status
        self.headers = response.headers

    def piece(self) -> bytes | None:
        """The next piece, or None at the end."""
        if self._plain:
            return next(self._response, None)

        async def piece() -> bytes | None:
            return await anext(self._response, None)

        return self._run(piece())

    def pieces(self) -> list[bytes]:
        return list(iter(self.piece, None))

    def read(self, *limit: int) -> bytes:
        return self._response.read(*limit) if self._plain else self._run(self._response.read(*limit))

    def close(self) -> None:
        if self._plain:
            self._response.close()
        else:
            self._run(self._response.aclose())

    def __enter__(self) -> Reply:
        entered = self._response.__enter__() if self._plain else self._run(self._response.__aenter__())
        assert entered is self._response
        return self

    def __exit__(self, *error: Any) -> None:
        if self._plain:
            self._response.__exit__(*error)
        else:
            self._run(self._response.__aexit__(*error))


class Client:
    """A transport in either colour, with plain methods; a context manager."""

    def __init__(self, transport: Transport | AsyncTransport, *, reuses: bool = True) -> None:
        self.reuses = reuses
        self.transport: Any = transport
        self.plain = hasattr(transport, "close")
        self._runner = asyncio.Runner()

    def run(self, awaitable: Awaitable[T]) -> T:
        async def main() -> T:
            return await awaitable

        return self._runner.run(main())

    def open(self, url: str, **fields: Any) -> Reply:
        request = HttpRequest(**{"url": url, "timeout": QUICK, "stream": True, **fields})
        response = self.transport.open(request)
        return Reply(response if self.plain else self.run(response), self.run)

    def close(self) -> None:
        if self.plain:
            self.transport.close()
        else:
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

    def __init__(
        self,
        make: Callable[..., Transport | AsyncTransport],
        *,
        encodings: str,
        cancels_open: bool,
        notices_leaving: bool,
        reuses: bool = True,
    ) -> None:
        self._make = make
        self.encodings = encodings.split()
        """What it can unpack."""
        self.cancels_open = cancels_open
        """Whether a request that is cancelled before its reply began is cut at once."""
        self.notices_leaving = notices_leaving
        """Whether a connection that the server has closed is never used again."""
        self.reuses = reuses
        """Whether a connection serves more than one request."""

    def __repr__(self) -> str:
        return self._make.__name__

    @property
    def plain(self) -> bool:
        return hasattr(self._make, "close")

    def client(self, **options: Any) -> Client:
        return Client(self._make(**options), reuses=self.reuses)


STANDARD = accepted_encodings().replace(",", "")
"""gzip and deflate, and what else the libraries that are installed can unpack."""

KINDS = [
    Kind(SocketTransport, encodings=STANDARD, cancels_open=True, notices_leaving=True),
    Kind(AsyncioTransport, encodings=STANDARD, cancels_open=True, notices_leaving=True),
    Kind(PyreqwestTransport, encodings="gzip deflate br zstd", cancels_open=False, notices_leaving=False),
    Kind(AsyncPyreqwestTransport, encodings="gzip deflate br zstd", cancels_open=False, notices_leaving=False),
    Kind(Httpx2Transport, encodings=STANDARD, cancels_open=True, notices_leaving=True, reuses=False),
    Kind(AsyncHttpx2Transport, encodings=STANDARD, cancels_open=True, notices_leaving=True, reuses=False),
]
