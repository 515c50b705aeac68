"""Requests to the running model.

Owns: waiting for a turn, putting the address and the key into a request, and giving the turn back when the reply ends.
Must not know: what is asked. Closing a reply early closes its connection, and the model stops at the next token.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import ClassVar, Final, Self

import msgspec

from dragoman._stepping import step
from dragoman.errors import ConnectionFailedError
from dragoman.transport.protocol import MAX_BODY_BYTES, HttpRequest, Response, Transport

from .shared import Lease, Server, SharedModel
from .turns import Turn

__all__ = ["PLACE", "LocalTransport", "Reply", "addressed", "broken"]

PLACE: Final = "http://127.0.0.1:0/v1"
"""What stands in requests for the address: it is known only when the model runs."""


def addressed(request: HttpRequest, server: Server) -> HttpRequest:
    """The request with the address and the key of the running model."""
    return msgspec.structs.replace(
        request,
        url=f"{server.address}/v1{request.url.removeprefix(PLACE)}",
        headers={**request.headers, "authorization": f"Bearer {server.key}"},
    )


def broken(model: SharedModel, error: ConnectionFailedError) -> ConnectionFailedError:
    """The error for a connection to the model's program that broke; the next call looks whether it lives."""
    model.doubt()
    message = "The program that runs the local model does not answer any more."
    hint = (
        "Ask again: it is started anew. If it happens each time, memory may be short: use a smaller model or context."
    )
    return ConnectionFailedError(message, hint=hint, code=error.code)


class LocalTransport:
    """Sends requests to the model, one at a time. Safe to share between threads."""

    blocking: ClassVar[bool] = True

    def __init__(self, lease: Lease, inner: Transport) -> None:
        self._lease: Lease = lease
        self._inner: Transport = inner
        # An engine that nobody closed must not keep the model in memory for ever.
        self._forgotten: weakref.finalize[[Lease, Transport], LocalTransport] = weakref.finalize(
            self, _ended, lease, inner
        )

    async def open(self, request: HttpRequest) -> Response:
        """Wait for a turn, run the model if it does not, and send the request."""
        model = self._lease.model
        turn = model.turns.waited(request.timeout.read)
        try:
            return Reply(await self._inner.open(addressed(request, self._lease.server())), turn, model)
        except ConnectionFailedError as error:
            turn.give_back()
            raise broken(model, error) from error
        except BaseException:
            turn.give_back()
            raise

    async def aclose(self) -> None:
        """Close the connections; the model ends if nobody else needs it."""
        self._forgotten()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


def _ended(lease: Lease, inner: Transport) -> None:
    try:
        step(inner.aclose())
    finally:
        lease.release()


class Reply:
    """A reply that ends a turn when it ends."""

    __slots__ = ("_model", "_response", "_turn")

    def __init__(self, response: Response, turn: Turn, model: SharedModel) -> None:
        self._response: Response = response
        self._turn: Turn = turn
        self._model: SharedModel = model

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def next(self) -> bytes:
        try:
            piece = await self._response.next()
        except ConnectionFailedError as error:
            self._turn.give_back()
            raise broken(self._model, error) from error
        except BaseException:
            self._turn.give_back()
            raise
        if not piece:
            self._turn.give_back()
        return piece

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
