"""One connection of a client.

Owns: reading requests from it, taking the steps of their answers, and how it ends.
Must not know: what requests and answers are about.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import Protocol, cast

from .http1 import BadRequestError, HttpRequest, RequestParser
from .plan import Ending, Pause
from .sending import End, Send, Step, response

__all__ = ["Connection", "Service"]


class Service(Protocol):
    """What a connection needs of the server."""

    longest_pause: float

    async def answer(self, http: HttpRequest) -> Iterable[Step]:
        """The steps of the answer to a request."""
        ...

    def opened(self, connection: Connection) -> None:
        """A connection was made."""
        ...

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        ...


class Connection(asyncio.Protocol):
    """Serves one client until either side ends it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._parser = RequestParser()
        self._more = asyncio.Event()
        self._gone = asyncio.Event()
        """The client has closed its side, or the connection is lost."""
        self._writable = asyncio.Event()
        self._writable.set()
        self.task: asyncio.Task[None] | None = None

    # --- what asyncio tells us ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._service.opened(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self._more.set()

    def eof_received(self) -> bool:
        self._gone.set()
        self._more.set()
        return True  # an answer that is under way is still sent; after it, the connection is closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self._writable.set()
        if self.task is not None:
            self.task.cancel()
        self._service.lost(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- serving ---

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()

    async def _serve(self) -> None:
        try:
            while (http := await self._next_request()) is not None:
                if not await self._respond(http):
                    break
        except BadRequestError as error:
            text = f"{error}\n".encode()
            self._transport.write(response(error.status, {"content-type": "text/plain", "connection": "close"}, text))
        finally:
            self._transport.close()

    async def _next_request(self) -> HttpRequest | None:
        while True:
            request = self._parser.next_request()
            if request is not None:
                return request
            if self._gone.is_set():
                return None
            if self._parser.wants_permission():
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._more.clear()
            await self._more.wait()

    async def _respond(self, http: HttpRequest) -> bool:
        """Take the steps. Returns whether the connection can be used again."""
        for step in await self._service.answer(http):
            match step:
                case Send(data=data):
                    self._transport.write(data)
                    await self._writable.wait()
                    await asyncio.sleep(0)  # the other connections' turn, and a packet of its own
                case Pause():
                    if not await self._pause(step):
                        return False
                case End(how=how):
                    return await self._end(how) and http.keeps_alive
        return False

    async def _pause(self, pause: Pause) -> bool:
        """Wait. Returns whether to go on, which makes no sense when the client has gone."""
        longest = self._service.longest_pause
        seconds = longest if pause.seconds is None else min(pause.seconds, longest)
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return pause.go_on
        return False

    async def _end(self, how: Ending) -> bool:
        if how == "reset":
            # What was written shall arrive before the reset, which overtakes what waits in buffers.
            await asyncio.sleep(0.01)
            sock = cast("socket.socket", self._transport.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        return how == "end"
