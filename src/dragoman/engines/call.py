"""One call over HTTP, written once for both colours: attempts, retries, and the account of them.

Owns: every decision in a call, the ledger of attempts, and the rule that nothing is retried silently once a part of the
answer has reached the caller.
Must not know: plain or async. The transport and `sleep` block or await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from dragoman.conversation import Fold, Message, ReplyEvent
from dragoman.errors import ProviderError
from dragoman.providers import Call, Codec, Decoder, Encoded, is_content
from dragoman.transport import (
    Attempt,
    AttemptRecord,
    GiveUp,
    HttpRequest,
    Response,
    Transport,
    decide,
    retry_after_of,
)

from .base import Reply, failed
from .keys import without_keys

if TYPE_CHECKING:
    from dragoman.providers import AnswerReader

    from .http import Connection

_NO_HEADERS: Final[Mapping[str, str]] = {}
_REQUEST_IDS: Final = ("request-id", "x-request-id", "x-goog-request-id", "apim-request-id", "cf-ray")
"""Headers with the id under which a provider can find a request."""


class Prepared(Struct, frozen=True):
    """A call as the model gets it, what the codec made of it, and how its reply is read."""

    codec: Codec
    call: Call
    encoded: Encoded
    reader: AnswerReader | None = None
    """What takes the answer out of a reply that had to be asked for in another form."""


class ModelCall:
    """One call under way, with an account of it that is complete at any time."""

    def __init__(
        self,
        request: HttpRequest,
        prepared: Prepared,
        connection: Connection,
        transport: Transport,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.request: HttpRequest = request
        self._prepared: Prepared = prepared
        self._connection: Connection = connection
        self._transport: Transport = transport
        self._sleep: Callable[[float], Awaitable[None]] = sleep
        self._fold: Fold = Fold()
        self._attempts: list[AttemptRecord] = []
        self._waited: float = 0.0
        """Seconds before the attempt that is under way."""
        self._began: float = 0.0
        """When the first attempt began, and when the one that is under way."""
        self._started: float = 0.0
        self._headers: Mapping[str, str] = _NO_HEADERS
        self._status: int | None = None
        # For a stream:
        self._response: Response | None = None
        self._decoder: Decoder | None = None
        self._handed_over: bool = False
        """Whether an event has reached the caller."""
        self._problem: ProviderError | None = None
        """What came behind events that had to be handed over first."""
        self._failure: ProviderError | None = None
        """What the call has ended with."""
        self._over: bool = False

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._fold.message()

    @property
    def account(self) -> Reply:
        """The message and the account of the call so far."""
        encoded = self._prepared.encoded
        return Reply(
            request_id=self._request_id,
            message=self._fold.message(),
            headers=self._headers,
            received=self._connection.wall_clock(),
            adaptations=encoded.adaptations,
            losses=encoded.losses,
            attempts=tuple(self._attempts),
        )

    # --- a whole reply ------------------------------------------------------------------------------------------------

    async def reply(self) -> Reply:
        """Make the call and give the whole reply. Raises ProviderError."""
        while True:
            request = self._begin_attempt()
            try:
                response = await self._transport.open(request)
                self._headers, self._status = response.headers, response.status
                body = await response.read()  # which frees the connection, however it ends
                if not 200 <= self._status < 300:
                    raise self._refusal(body)
                prepared, events = self._prepared, list[ReplyEvent]()
                decoder = prepared.codec.decoder(prepared.call, prepared.encoded)
                if prepared.reader is not None:
                    decoder = prepared.reader.wrap(decoder)
                try:
                    decoder.feed(body, events)
                    decoder.finish(events)
                except ProviderError:
                    self._fold.extend(events)
                    if not self._fold.completed:  # if it is, the provider had said that this is all
                        raise
                else:
                    self._fold.extend(events)
            except ProviderError as error:
                pause = self._judge(error)
                if pause is None:
                    raise
            else:
                self._record("ok", None)
                return self.account
            await self._sleep(pause)

    # --- a stream -----------------------------------------------------------------------------------------------------

    async def next(self) -> list[ReplyEvent]:
        """The next events; none when the reply is complete. Raises ProviderError, once its event was handed over."""
        while not self._over:
            try:
                if self._decoder is None:
                    await self._open()
                if events := await self._read_events():
                    return events
            except ProviderError as error:
                pause = self._judge(error)
                await self.aclose()
                if pause is None:
                    self._over, self._failure = True, error
                    return [failed(error)]
                await self._sleep(pause)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return []

    async def _open(self) -> None:
        response = self._response = await self._transport.open(self._begin_attempt())
        self._headers, self._status = response.headers, response.status
        if not 200 <= self._status < 300:
            raise self._refusal(await response.read())
        prepared = self._prepared
        decoder = prepared.codec.decoder(prepared.call, prepared.encoded)
        self._decoder = decoder if prepared.reader is None else prepared.reader.wrap(decoder)

    async def _read_events(self) -> list[ReplyEvent]:
        """Events to hand over, or none at the end of the reply."""
        response, decoder = self._response, self._decoder
        assert response is not None
        assert decoder is not None
        events: list[ReplyEvent] = []
        try:
            if self._problem is not None:
                raise self._problem
            while not decoder.done and (piece := await response.next()):
                decoder.feed(piece, events)
                if events and (self._handed_over or any(map(is_content, events))):
                    # That a reply has begun is told together with what it begins with: until then a provider that
                    # accepts the request and fails at once can still be tried again.
                    return self._hand_over(events)
            if decoder.done:
                await response.finish()  # the end that the dialect names is the end, whatever the server does
            decoder.finish(events)
        except ProviderError as error:
            if any(map(is_content, events)):
                self._problem = error
                return self._hand_over(events)
            if not self._fold.completed:  # if it is, the provider had said that this is all: nothing is missing
                raise
            events = []
        self._over = True
        await self.aclose()
        self._hand_over(events)
        self._record("ok", None)
        return events

    def _hand_over(self, events: list[ReplyEvent]) -> list[ReplyEvent]:
        self._fold.extend(events)
        self._handed_over = True
        return events

    async def aclose(self) -> None:
        """Close the response that is open, if one is."""
        response, self._response, self._decoder = self._response, None, None
        if response is not None:
            await response.aclose()

    # --- decisions and the ledger -------------------------------------------------------------------------------------

    def _begin_attempt(self) -> HttpRequest:
        """The request of the next attempt: a limit of the whole call holds for all attempts together."""
        self._started = self._connection.clock()
        if not self._attempts:
            self._began = self._started
            return self.request
        timeout = self.request.timeout
        if timeout.total is None:
            return self.request
        left = max(0.001, timeout.total - (self._started - self._began))
        return msgspec.structs.replace(self.request, timeout=msgspec.structs.replace(timeout, total=left))

    @property
    def _request_id(self) -> str | None:
        headers = self._headers
        return next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)

    def _refusal(self, body: bytes) -> ProviderError:
        """What a response says whose status is not that of a reply."""
        prepared = self._prepared
        error = prepared.codec.error(self._status or 0, self._headers, body, prepared.call)
        advice = retry_after_of(self._headers, self._connection.wall_clock())
        if advice is not None:  # the header is more precise than what a body may say
            error.retry_after = advice
        return error

    def _judge(self, error: ProviderError) -> float | None:
        """The attempt failed: the seconds to wait before another one; None if that is all."""
        without_keys(error, self.request.headers)
        connection, total = self._connection, self.request.timeout.total
        elapsed = connection.clock() - self._began
        attempt = Attempt(headers=self._headers, error=error, elapsed=elapsed, delivered=self._handed_over)
        now, made = connection.wall_clock(), len(self._attempts) + 1
        decision = decide(attempt, connection.retry, made, random=connection.random(), now=now)
        if not isinstance(decision, GiveUp) and total is not None and elapsed + decision.after >= total:
            decision = GiveUp(f"{decision.why}; the call may take {total:g} s in all")
        self._record(decision.why, error)
        if isinstance(decision, GiveUp):
            self._fold.push(failed(error))
            message = self._fold.message()
            error.partial = message if message.blocks else None
            error.attempts = tuple(self._attempts)
            return None
        self._fold = Fold()
        self._headers, self._status = _NO_HEADERS, None
        self._waited = decision.after
        return decision.after

    def _record(self, outcome: str, error: ProviderError | None) -> None:
        self._attempts.append(
            AttemptRecord(
                number=len(self._attempts) + 1,
                outcome=outcome,
                waited=self._waited,
                duration=self._connection.clock() - self._started,
                status=self._status if error is None else error.status,
                request_id=self._request_id,
            )
        )
