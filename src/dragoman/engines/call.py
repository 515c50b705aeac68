"""One model call, written once for both colours: attempts, retries, and the account of them.

Owns: every decision in a call, the ledger of attempts, and the rule that nothing is retried silently once an event has
reached the caller.
Must not know: plain or async. The transport and `sleep` block or await.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, Self

from msgspec import Struct

from dragoman._stepping import step
from dragoman.conversation import Failed, Fold, Message, ReplyEvent, ReplyStarted
from dragoman.errors import ProviderError
from dragoman.providers import Call, Codec, Decoder, Encoded
from dragoman.transport import (
    Attempt,
    AttemptRecord,
    GiveUp,
    HttpRequest,
    Response,
    RetryPolicy,
    Transport,
    decide,
    retry_after_of,
)

from .keys import without_keys
from .reply import Reply

if TYPE_CHECKING:
    from dragoman.providers import AnswerReader

_NO_HEADERS: Final[Mapping[str, str]] = {}
_REQUEST_IDS: Final = ("request-id", "x-request-id", "x-goog-request-id", "apim-request-id", "cf-ray")
"""Headers with the id under which a provider can find a request."""


class ReplyCall(Protocol):
    """One call under way, whatever answers it: all of it at once, or pulled event by event."""

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        ...

    @property
    def account(self) -> Reply:
        """The message and the account of the call so far."""
        ...

    async def reply(self) -> Reply:
        """Make the call and give the whole reply."""
        ...

    async def next(self) -> list[ReplyEvent]:
        """The next events; none when the reply is complete."""
        ...

    async def aclose(self) -> None:
        """Stop, and let go of what is open."""
        ...


class Prepared(Struct, frozen=True):
    """A call as the model gets it, what the codec made of it, and how its reply is read."""

    codec: Codec
    call: Call
    encoded: Encoded
    reader: AnswerReader | None = None

    def decoder(self) -> Decoder:
        """What reads one reply."""
        decoder = self.codec.decoder(self.call, self.encoded)
        return decoder if self.reader is None else self.reader.wrap(decoder)

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What a reply with such a status says."""
        return self.codec.error(status, headers, body, self.call)


class Conditions(Struct, frozen=True):
    """Under which a call is made: how hard to try, and what would otherwise be taken from the machine."""

    retry: RetryPolicy
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    random: Callable[[], float]


class ModelCall:
    """One call under way, with an account of it that is complete at any time."""

    def __init__(
        self,
        request: HttpRequest,
        prepared: Prepared,
        conditions: Conditions,
        transport: Transport,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.request: HttpRequest = request
        self._prepared: Prepared = prepared
        self._conditions: Conditions = conditions
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
        self._request_id: str | None = None
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
            message=self._fold.message(),
            request_id=self._request_id,
            headers=self._headers,
            received=self._conditions.wall_clock(),
            adaptations=encoded.adaptations,
            losses=encoded.losses,
            attempts=tuple(self._attempts),
        )

    # --- a whole reply ------------------------------------------------------------------------------------------------

    async def reply(self) -> Reply:
        """Make the call and give the whole reply. Raises ProviderError."""
        while True:
            self._begin_attempt()
            try:
                response = await self._transport.open(self.request)
                try:
                    body = await response.read()  # which frees the connection, however it ends
                finally:
                    self._note_head(response)
                self._take_whole(body)
            except ProviderError as error:
                pause = self._judge(error)
                if pause is None:
                    raise
            else:
                self._record("ok", None)
                return self.account
            await self._sleep(pause)

    def _take_whole(self, body: bytes) -> None:
        if not self._accepted:
            raise self._refusal(body)
        events: list[ReplyEvent] = []
        decoder = self._prepared.decoder()
        try:
            decoder.feed(body, events)
            decoder.finish(events)
        except ProviderError:
            self._fold.extend(events)
            if not self._fold.completed:  # if it is, the provider had said that this is all: nothing is missing
                raise
        else:
            self._fold.extend(events)

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
                    return [_failed(error)]
                await self._sleep(pause)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return []

    async def _open(self) -> None:
        self._begin_attempt()
        response = self._response = await self._transport.open(self.request)
        self._note_head(response)
        if not self._accepted:
            raise self._refusal(await response.read())
        self._decoder = self._prepared.decoder()

    async def _read_events(self) -> list[ReplyEvent]:
        """Events to hand over, or none at the end of the reply."""
        response, decoder = self._response, self._decoder
        assert response is not None
        assert decoder is not None
        events: list[ReplyEvent] = []
        try:
            if self._problem is not None:
                raise self._problem
            while piece := await response.next():
                decoder.feed(piece, events)
                if events and not (len(events) == 1 and type(events[0]) is ReplyStarted):
                    # That a reply has begun is told together with what it begins with: until then a provider that
                    # accepts the request and fails at once can still be tried again.
                    return self._hand_over(events)
            decoder.finish(events)
        except ProviderError as error:
            if any(type(event) is not ReplyStarted for event in events):
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

    def _begin_attempt(self) -> None:
        self._started = self._conditions.clock()
        if not self._attempts:
            self._began = self._started

    def _note_head(self, response: Response) -> None:
        headers = self._headers = response.headers
        self._status = response.status
        self._request_id = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)

    @property
    def _accepted(self) -> bool:
        return self._status is not None and 200 <= self._status < 300

    def _refusal(self, body: bytes) -> ProviderError:
        """What a response says whose status is not that of a reply."""
        error = self._prepared.error(self._status or 0, self._headers, body)
        advice = retry_after_of(self._headers, self._conditions.wall_clock())
        if advice is not None:  # the header is more precise than what a body may say
            error.retry_after = advice
        return error

    def _judge(self, error: ProviderError) -> float | None:
        """The attempt failed: the seconds to wait before another one; None if that is all."""
        without_keys(error, self.request.headers)
        conditions = self._conditions
        elapsed = conditions.clock() - self._began
        attempt = Attempt(headers=self._headers, error=error, elapsed=elapsed, delivered=self._handed_over)
        now, made = conditions.wall_clock(), len(self._attempts) + 1
        decision = decide(attempt, conditions.retry, made, random=conditions.random(), now=now)
        self._record(decision.why, error)
        if isinstance(decision, GiveUp):
            self._fold.push(_failed(error))
            message = self._fold.message()
            error.partial = message if message.blocks else None
            return None
        self._fold = Fold()
        self._headers, self._status, self._request_id = _NO_HEADERS, None, None
        self._waited = decision.after
        return decision.after

    def _record(self, outcome: str, error: ProviderError | None) -> None:
        self._attempts.append(
            AttemptRecord(
                number=len(self._attempts) + 1,
                outcome=outcome,
                waited=self._waited,
                duration=self._conditions.clock() - self._started,
                status=self._status if error is None else error.status,
                request_id=self._request_id,
            )
        )


def _failed(error: ProviderError) -> Failed:
    return Failed(type(error).__name__, error.message)


# --- streams for callers ---------------------------------------------------------------------------------------------


class _Stream:
    """What the streams of both colours tell."""

    def __init__(self, call: ReplyCall) -> None:
        self._call: ReplyCall = call

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return self._call.account


class ReplyStream(_Stream):
    """A reply while it arrives: iterate it inside a `with` block, which closes the connection however it is left."""

    def __init__(self, call: ReplyCall) -> None:
        super().__init__(call)
        self._events: Generator[ReplyEvent, None, None] = self._iterate()

    def _iterate(self) -> Generator[ReplyEvent, None, None]:
        call = self._call
        try:
            while events := step(call.next()):
                yield from events
        finally:
            step(call.aclose())

    def __iter__(self) -> Iterator[ReplyEvent]:
        return self._events

    def close(self) -> None:
        """Stop the reply and release the connection."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncReplyStream(_Stream):
    """A reply while it arrives: iterate it inside an `async with` block, which closes the connection in any case."""

    def __init__(self, call: ReplyCall) -> None:
        super().__init__(call)
        self._events: AsyncGenerator[ReplyEvent, None] = self._iterate()

    async def _iterate(self) -> AsyncGenerator[ReplyEvent, None]:
        call = self._call
        try:
            while events := await call.next():
                for event in events:
                    yield event
        finally:
            await call.aclose()

    def __aiter__(self) -> AsyncIterator[ReplyEvent]:
        return self._events

    async def aclose(self) -> None:
        """Stop the reply and release the connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
