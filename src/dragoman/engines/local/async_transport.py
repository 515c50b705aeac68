"""Requests to the running model, from an event loop.

Owns: the twin of transport.py. The loop never waits: not for a turn, and not while the model is fetched or loaded,
which happens in a thread.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Self

from dragoman.errors import ConnectionFailedError
from dragoman.transport.protocol import HttpRequest, Response, Transport

from .shared import Lease, Server
from .transport import Reply, addressed, broken
from .turns import Turn, Turns, stuck

__all__ = ["AsyncLocalTransport"]


class AsyncLocalTransport:
    """Sends requests to the model, one at a time. Safe to share between tasks."""

    def __init__(self, lease: Lease, inner: Transport) -> None:
        self._lease: Lease = lease
        self._inner: Transport = inner
        self._forgotten: weakref.finalize[[], AsyncLocalTransport] = weakref.finalize(self, lease.release)

    async def open(self, request: HttpRequest) -> Response:
        """Wait for a turn, run the model if it does not, and send the request."""
        model = self._lease.model
        turn = await _waited(model.turns, request.timeout.read)
        try:
            server = await self._server()
            return Reply(await self._inner.open(addressed(request, server)), turn, model)
        except ConnectionFailedError as error:
            turn.give_back()
            raise broken(model, error) from error
        except BaseException:
            turn.give_back()
            raise

    async def _server(self) -> Server:
        if self._lease.model.running is not None:
            return self._lease.server()
        return await asyncio.to_thread(self._lease.server)

    async def aclose(self) -> None:
        """Close the connections; the model ends if nobody else needs it."""
        await self._inner.aclose()
        await asyncio.to_thread(self._forgotten)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


async def _waited(turns: Turns, seconds: float | None) -> Turn:
    loop = asyncio.get_running_loop()
    come = asyncio.Event()
    turn = turns.asked(lambda: loop.call_soon_threadsafe(come.set) and None)
    try:
        while not come.is_set():
            seen = turns.given_back
            try:
                await asyncio.wait_for(come.wait(), seconds)
            except TimeoutError:
                if turns.given_back == seen:
                    raise stuck(seconds) from None
    except BaseException:
        turn.give_back()
        raise
    return turn
