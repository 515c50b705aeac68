"""Calls of a model, written once for both colours: what every call does, and a call over HTTP.

Owns: Reply, the account of a call; ReplyCall, which hands events over as soon as something of an answer has come;
ModelCall: attempts, retries, and the ledger of them.
Must not know: plain or async. The transport blocks or awaits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from dragoman._stop import pause
from dragoman.conversation import Failed, Fold, Message, ReplyEvent
from dragoman.errors import ProviderError
from dragoman.providers import Adaptation, Call, Codec, Decoder, Encoded, Loss, is_content, read_refusal
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

from .keys import without_keys

if TYPE_CHECKING:
    from dragoman.providers import AnswerReader
    from dragoman.transport import RateLimits

    from .http import Connection


class Reply(Struct, frozen=True, kw_only=True):
    """A model's answer and the account of the call."""

    message: Message
    """Complete, or marked interrupted with everything that was received."""
    request_id: str | None = None
    headers: Mapping[str, str] = {}
    received: float = 0.0
    """When: the Unix time."""
    adaptations: tuple[Adaptation, ...] = ()
    """Options and schemas that were changed to suit the model."""
    losses: tuple[Loss, ...] = ()
    """Parts of the history that this model did not get."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The ledger: every attempt, why it failed, how long was waited."""

    @property
    def rate_limits(self) -> RateLimits | None:
        """What the provider said about its limits; None if nothing. Read from the headers when it is asked for."""
        from dragoman.transport import rate_limits_of  # most calls never need it

        return rate_limits_of(self.headers, self.received)


class ReplyCall:
    """One call, ready or under way: read it whole with `reply`, or event by event with `next`.

    A kind of call has `advance`, and where it holds something open `release`. In a plain program they block and never
    suspend (see `dragoman._stepping`).
    """

    def __init__(self) -> None:
        self.over: bool = False
        """Whether nothing more will come."""
        self.attempts: list[AttemptRecord] = []
        self._fold: Fold = Fold()
        self._unsaid: list[ReplyEvent] = []
        """What was taken in and not handed over yet."""
        self._handed_over: bool = False
        self._failure: ProviderError | None = None
        """What the call has ended with, until it is raised."""

    # --- for callers ---

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._fold.message()

    @property
    def account(self) -> Reply:
        """The message and the account of the call so far."""
        return Reply(message=self._fold.message(), attempts=tuple(self.attempts))

    async def reply(self) -> Reply:
        """Make the call and give the whole reply. Raises ProviderError."""
        try:
            while await self.next():
                pass
        finally:
            await self.aclose()
        return self.account

    async def next(self) -> list[ReplyEvent]:
        """The next events; none when the reply is complete. Raises ProviderError, once its event was handed over."""
        while not self.over:
            try:
                await self.advance()
            except ProviderError as error:
                await self.release()
                if await self.try_again(error):
                    self._fold, self._unsaid = Fold(), []
                else:
                    self._fail(error)
            # That a reply has begun is told together with what it begins with: until then a provider that accepts the
            # request and fails at once can still be tried again.
            if self._unsaid and (self.over or self.has_begun):
                self._handed_over = True
                said, self._unsaid = self._unsaid, []
                return said
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return []

    async def aclose(self) -> None:
        """Stop, and close what is open."""
        self.over = True
        await self.release()

    def _fail(self, error: ProviderError) -> None:
        self.take([failed(error)])
        message = self._fold.message()
        error.partial = message if message.blocks else None
        error.attempts = tuple(self.attempts)
        self.over, self._failure = True, error

    # --- for kinds of calls ---

    async def advance(self) -> None:
        """Wait for what comes next, and `take` it; set `over` with the last of it. Raises ProviderError."""
        raise NotImplementedError

    async def try_again(self, error: ProviderError) -> bool:
        """Whether the call is made once more after this error; waits until it is time."""
        return False

    async def release(self) -> None:
        """Close what is open."""

    def take(self, events: list[ReplyEvent]) -> None:
        """Take events of the reply in."""
        self._fold.extend(events)
        self._unsaid += events

    @property
    def has_begun(self) -> bool:
        """Whether something of the answer itself has come."""
        return self._handed_over or any(map(is_content, self._unsaid))


def failed(error: Exception) -> Failed:
    """The event that says that an error ended a reply."""
    return Failed(type(error).__name__, getattr(error, "message", "") or str(error))


# --- over HTTP --------------------------------------------------------------------------------------------------------

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

    def decoder(self) -> Decoder:
        """A decoder for the reply."""
        decoder = self.codec.decoder(self.call, self.encoded)
        return decoder if self.reader is None else self.reader.wrap(decoder)


class ModelCall(ReplyCall):
    """One call over HTTP. Nothing is tried again once a part of the answer has reached the caller."""

    def __init__(
        self, request: HttpRequest, prepared: Prepared, connection: Connection, transport: Transport, *, blocking: bool
    ) -> None:
        super().__init__()
        self._blocking: bool = blocking
        self.request: HttpRequest = request
        self._prepared: Prepared = prepared
        self._connection: Connection = connection
        self._transport: Transport = transport
        self._response: Response | None = None
        self._decoder: Decoder | None = None
        self._waited: float = 0.0
        """Seconds before the attempt that is under way."""
        self._began: float = 0.0
        """When the first attempt began, and when the one that is under way."""
        self._started: float = 0.0
        self._headers: Mapping[str, str] = _NO_HEADERS
        self._status: int | None = None

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
            attempts=tuple(self.attempts),
        )

    async def advance(self) -> None:
        """Send the request if it was not sent, and read the next piece of a stream, or the whole reply."""
        streamed, events = self._prepared.call.stream, list[ReplyEvent]()
        problem: ProviderError | None = None
        try:
            piece = await self._read()
            decoder = self._decoder = self._decoder or self._prepared.decoder()
            if piece:
                decoder.feed(piece, events)
            if not piece or not streamed or decoder.done:
                if self._response is not None and decoder.done:
                    await self._response.finish()  # the end that the dialect names is the end, whatever the server does
                decoder.finish(events)
                self.over = True
        except ProviderError as error:
            problem = error
        self._fold.extend(events)
        self._unsaid += events
        if problem is not None and not self._fold.completed:
            raise problem
        if self.over or problem is not None:  # then the provider had said before that this is all: nothing is missing
            self.over = True
            await self.release()
            self._record("ok", None)

    async def _read(self) -> bytes:
        response = self._response
        if response is None:
            response = self._response = await self._transport.open(self._begin_attempt())
            self._headers, self._status = response.headers, response.status
            if not 200 <= self._status < 300:
                raise self._refusal(await response.read())
        if self._prepared.call.stream:
            return await response.next()
        self._response = None
        return await response.read()  # which frees the connection, however it ends

    async def release(self) -> None:
        """Close the response that is open, if one is."""
        response, self._response, self._decoder = self._response, None, None
        if response is not None:
            await response.aclose()

    # --- decisions and the ledger ---

    def _begin_attempt(self) -> HttpRequest:
        """The request of the next attempt: a limit of the whole call holds for all attempts together."""
        self._started = self._connection.clock()
        if not self.attempts:
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
        error = read_refusal(self._status or 0, self._headers, body, prepared.call)
        advice = retry_after_of(self._headers, self._connection.wall_clock())
        if advice is not None:  # the header is more precise than what a body may say
            error.retry_after = advice
        return error

    async def try_again(self, error: ProviderError) -> bool:
        """Decide about another attempt, and wait for its time."""
        without_keys(error, self.request.headers)
        connection, total = self._connection, self.request.timeout.total
        elapsed = connection.clock() - self._began
        delivered = self._prepared.call.stream and self.has_begun
        attempt = Attempt(headers=self._headers, error=error, elapsed=elapsed, delivered=delivered)
        now, made = connection.wall_clock(), len(self.attempts) + 1
        decision = decide(attempt, connection.retry, made, random=connection.random(), now=now)
        if not isinstance(decision, GiveUp) and total is not None and elapsed + decision.after >= total:
            decision = GiveUp(f"{decision.why}; the call may take {total:g} s in all")
        self._record(decision.why, error)
        if isinstance(decision, GiveUp):
            return False
        self._headers, self._status = _NO_HEADERS, None
        self._waited = decision.after
        await pause(decision.after, blocking=self._blocking)
        return True

    def _record(self, outcome: str, error: ProviderError | None) -> None:
        self.attempts.append(
            AttemptRecord(
                number=len(self.attempts) + 1,
                outcome=outcome,
                waited=self._waited,
                duration=self._connection.clock() - self._started,
                status=self._status if error is None else error.status,
                request_id=self._request_id,
            )
        )
