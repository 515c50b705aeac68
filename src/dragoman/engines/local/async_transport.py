"""Requests to the running model, from an event loop.

Owns: the twin of transport.py. The loop never waits: not for a turn, and not while the model is fetched or loaded,
which happens in a thread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import Self

from dragoman.errors import ConnectionFailedError
from dragoman.transport.protocol import MAX_BODY_BYTES, AsyncResponse, AsyncTransport, HttpRequest

from .shared import Lease, Server, SharedModel
from .transport import addressed, broken
from .turns import Turn, Turns, stuck

__all__ = ["AsyncLocalTransport"]


class AsyncLocalTransport:
    """Sends requests to the model, one at a time. Safe to share between tasks."""

    def __init__(self, lease: Lease, inner: AsyncTransport) -> None:
        self._lease: Lease = lease
        self._inner: AsyncTransport = inner
        self._forgotten: weakref.finalize[[], AsyncLocalTransport] = weakref.finalize(self, lease.release)

    async def open(self, request: HttpRequest) -> AsyncResponse:
        """Wait for a turn, run the model if it does not, and send the request."""
        model = self._lease.model
        turn = await _waited(model.turns, request.timeout.read)
        try:
            server = await self._server()
            return _Reply(await self._inner.open(addressed(request, server)), turn, model)
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


class _Reply:
    """A reply that ends a turn when it ends."""

    __slots__ = ("_model", "_response", "_turn")

    def __init__(self, response: AsyncResponse, turn: Turn, model: SharedModel) -> None:
        self._response: AsyncResponse = response
        self._turn: Turn = turn
        self._model: SharedModel = model

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._response)
        except ConnectionFailedError as error:
            self._turn.give_back()
            raise broken(self._model, error) from error
        except BaseException:
            self._turn.give_back()
            raise

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        try:
            return await self._response.read(limit)
        except ConnectionFailedError as error:
            raise broken(self._model, error) from error
        finally:
            self._turn.give_back()

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            self._turn.give_back()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
